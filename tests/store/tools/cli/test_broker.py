"""`pyrocket broker`: its start, its end, and what it refuses."""

import socket

import pytest
from pyrocket import Message, Store
from pyrocket.errors import StoreLockedError
from pyrocket.rpc.client import Client, Connection
from pyrocket.rpc.descriptors import message_class
from support.broker_process import ending, running, start
from support.commands import run


def status_of(address, service=""):
    import grpc

    request = message_class("grpc.health.v1.HealthCheckRequest")(service=service)
    with grpc.insecure_channel(address) as channel:
        reply = channel.unary_unary("/grpc.health.v1.Health/Check")(request.SerializeToString())
    return message_class("grpc.health.v1.HealthCheckResponse").FromString(reply).status


def test_a_broker_serves_a_new_store_holds_it_and_ends_cleanly(tmp_path):
    path = tmp_path / "store"
    with running(path) as (process, found):
        (address,) = found.listen
        client = Client(Connection(address))
        assert client.call("Hello", release="0", protocol=1).broker == "broker-a"
        client.close()
        assert status_of(address) == 1
        assert status_of(address, "pyrocket.v1.Broker") == 1

        with pytest.raises(StoreLockedError) as caught:
            Store.open(path)
        assert caught.value.code == "STORE_IN_USE"
        assert str(process.pid) in caught.value.message
        assert address in caught.value.message
        with Store.open(path, read_only=True) as reader:
            assert reader.topics.all() == {}
        second = run("broker", path, "--listen", "127.0.0.1:0")
        assert second.exit_code == 2
        assert f"process {process.pid}" in second.stderr

        process.terminate()
        process.wait(60)
        assert process.returncode == 0
    assert not (path / "abort").exists()
    assert not (path / "pyrocket" / "broker.json").exists()
    with Store.open(path) as store:
        store.append(Message(topic="orders", body=b"1"))


def test_a_port_in_use_is_refused_in_one_line_before_anything_is_served(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(tmp_path / "store", "--listen", address)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.startswith(f"Error [BROKER_ADDRESS]: the address {address} cannot be used")
    assert len(error.splitlines()) == 2
    assert not out


def test_a_store_that_is_written_to_is_refused_and_waited_for(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(Message(topic="orders", body=b"1"))
        done = run("broker", tmp_path / "store", "--listen", "127.0.0.1:0")
        assert done.exit_code == 2
        assert "STORE_IN_USE" in done.stderr
        waiting = start(tmp_path / "store", "--listen", "127.0.0.1:0", "--wait", "60s")
    with ending(waiting, tmp_path / "store") as found:
        assert found.pid == waiting.pid


def test_a_wrong_setting_is_refused_before_the_store_is_made(tmp_path):
    done = run("broker", tmp_path / "store", "--drain", "soon")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error [BROKER_SETTING]: --drain is 'soon'.")
    done = run("broker", tmp_path / "store", PYROCKET_BROKER_DRIAN="1s")
    assert "PYROCKET_BROKER_DRAIN?" in done.stderr
    assert not (tmp_path / "store").exists()
