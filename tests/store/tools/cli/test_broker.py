"""`pyrocket broker`: startup, shutdown, and rejected settings."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyrocket import Message, RemoteSink, Retention, Store
from pyrocket.broker.broker import running_state
from pyrocket.broker.settings import Settings
from pyrocket.disk.layout import Layout
from pyrocket.errors import NotAuthenticatedError, StoreFailedError, StoreLockedError
from pyrocket.metadata.broker_file import BrokerFile, RunningBroker
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server import monitoring
from pyrocket.server.process import open_store
from pyrocket.values.source import RunningState
from pyrocket.wire.descriptors import message_class
from support.broker_process import ending, running, start, wait_until_it_serves
from support.certificates import write_certificate
from support.commands import document, run
from support.users import ADMIN, credentials, write_users


def status_of(address, service=""):
    import grpc

    request = message_class("grpc.health.v1.HealthCheckRequest")(service=service)
    with grpc.insecure_channel(address) as channel:
        reply = channel.unary_unary("/grpc.health.v1.Health/Check")(request.SerializeToString())
    return message_class("grpc.health.v1.HealthCheckResponse").FromString(reply).status


def test_a_broker_serves_a_new_store_locks_it_and_shuts_down_cleanly(tmp_path):
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
        copied = run("snapshot", path, tmp_path / "copy")
        assert copied.exit_code == 0, copied.stderr
        assert not (tmp_path / "copy" / "pyrocket" / "broker.json").exists()
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


@pytest.mark.parametrize("given", [[], ["--listen", "127.0.0.1:0", "--metrics"]])
def test_a_port_in_use_is_reported_in_one_line_before_anything_is_served(tmp_path, given):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("broker", tmp_path / "store", *(given or ["--listen"]), address)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error [BROKER_ADDRESS]: the address {address} cannot be used")
    assert len(done.stderr.splitlines()) == 2
    assert not done.stdout


def test_a_broker_rejects_a_store_open_for_writing_or_waits_for_it(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(Message(topic="orders", body=b"1"))
        done = run("broker", tmp_path / "store", "--listen", "127.0.0.1:0")
        assert done.exit_code == 2
        assert "STORE_IN_USE" in done.stderr
        waiting = start(tmp_path / "store", "--listen", "127.0.0.1:0", "--wait", "60s")
    with ending(waiting, tmp_path / "store") as found:
        assert found.pid == waiting.pid


def test_the_wait_for_another_writer_is_limited(monkeypatch):
    refusals = [True, True, False]

    def answer(directory, **_):
        if refusals.pop(0):
            raise StoreLockedError("in use")
        return directory

    monkeypatch.setattr(Store, "open", answer)
    assert open_store("store", Settings(wait=60)) == "store"
    refusals[:] = [True, True, False]
    with pytest.raises(StoreLockedError):
        open_store("store", Settings(wait=0))


def test_an_invalid_setting_is_rejected_before_the_store_is_created(tmp_path):
    done = run("broker", tmp_path / "store", "--drain", "soon")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error [BROKER_SETTING]: --drain is 'soon'.")
    done = run("broker", tmp_path / "store", PYROCKET_BROKER_DRIAN="1s")
    assert "PYROCKET_BROKER_DRAIN?" in done.stderr
    (tmp_path / "broker.toml").write_text("drian = '1s'\n")
    done = run("broker", tmp_path / "store", "-c", tmp_path / "broker.toml")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 2)
    assert "Did you mean drain?" in done.stderr
    done = run("broker", tmp_path / "store", "--drian", "1s")
    assert done.exit_code == 2
    assert "--drain" in done.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--users", "users.toml"],
        ["--tls-certificate", "broker.pem", "--tls-key", "broker.key"],
        ["--listen", "0.0.0.0:8081", "--listen", "127.0.0.1:8082"],
    ],
)
def test_addresses_other_than_loopback_need_users_and_tls(tmp_path, given):
    done = run("broker", tmp_path / "store", "--listen", "0.0.0.0:8081", *given)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error [BROKER_EXPOSED]: the address 0.0.0.0:8081 can be reached")
    assert not (tmp_path / "store").exists()


def test_metrics_for_other_machines_need_insecure_although_there_are_users_and_tls(tmp_path):
    given = ["--users", "users.toml", "--tls-certificate", "a.pem", "--tls-key", "a.key"]
    done = run("broker", tmp_path / "store", "--metrics", "0.0.0.0:5557", *given)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error [BROKER_EXPOSED]: the address 0.0.0.0:5557 of /metrics")


def test_an_invalid_certificate_or_users_file_is_rejected_before_the_store_is_created(tmp_path):
    pem, key = write_certificate(tmp_path)
    _, other = write_certificate(tmp_path, "other")
    key.chmod(0o644)
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text("[users.a]\nsecert = 'long enough'")
    for given, expected in (
        (["--tls-certificate", pem], "a certificate and its key"),
        (["--tls-certificate", pem, "--tls-key", other], "are not a certificate and its key"),
        (["--tls-certificate", pem, "--tls-key", key], f"chmod 600 {key}"),
        (["--tls-certificate", tmp_path / "no", "--tls-key", other], "cannot be read"),
    ):
        done = run("broker", tmp_path / "store", "--listen", "127.0.0.1:0", *given)
        assert done.exit_code == 2
        assert done.stderr.startswith("Error [BROKER_CERTIFICATE]")
        assert expected in done.stderr
    done = run("broker", tmp_path / "store", "--users", users)
    assert done.stderr.startswith("Error [BROKER_USERS]")
    assert "Did you mean secret?" in done.stderr
    rule = '[[rules]]\nusers = ["a"]\ntopics = ["*"]\nallow = ["subscibe"]\n'
    users.write_text(f"[users.a]\nsecret = 'long enough'\n{rule}")
    done = run("broker", tmp_path / "store", "--users", users)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 2)
    assert "Did you mean subscribe?" in done.stderr
    assert not (tmp_path / "store").exists()


def test_tls_and_plain_addresses_are_served_together(tmp_path):
    pem, key = write_certificate(tmp_path)
    users = write_users(tmp_path, a=ADMIN)
    given = ["--listen", "127.0.0.1:0", "--listen", "plain://127.0.0.1:0", "--users", users]
    given += ["--tls-certificate", pem, "--tls-key", key]
    with running(tmp_path / "store", *given) as (_, found):
        known = credentials("a", tls=True, ca=pem.read_bytes())
        for address, tls in zip(found.listen, (True, False), strict=True):
            client = Client(Connection(address, replace(known, tls=tls)))
            client.call("Topics")
            client.close()
        with pytest.raises(NotAuthenticatedError):
            Client(Connection(found.listen[1])).call("Topics")


def get(address, path):
    try:
        with urlopen(f"http://{address}{path}", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_the_process_id_of_a_killed_broker_may_be_that_of_another_process(tmp_path):
    Store.open(tmp_path, create=True).close()
    BrokerFile(Layout(tmp_path)).write(RunningBroker(os.getpid(), ["127.0.0.1:1"]))
    assert run("broker", "status", tmp_path).exit_code == 1


def test_a_broker_has_status_metrics_health_and_json_logs(tmp_path):
    path = tmp_path / "store"
    assert run("broker", "status", path).exit_code == 2
    (tmp_path / "broker.conf").write_text("slaveReadEnable=true\n")
    given = ["--metrics", "127.0.0.1:0", "--log-format", "json", "-c", tmp_path / "broker.conf"]
    process = start(path, "--listen", "127.0.0.1:0", *given)
    found = wait_until_it_serves(process, path)
    client = Client(Connection(found.listen[0]))
    client.call("Prepare", topic="orders", create=True)
    client.close()
    shown = document("broker", "status", path)
    assert (shown["pid"], shown["listen"]) == (process.pid, found.listen)
    assert shown["writable"] is True
    assert get(found.metrics, "/health") == (200, "ready\n")
    assert get(found.metrics, "/else")[0] == 404
    code, text = get(found.metrics, "/metrics")
    assert code == 200
    names = 'cluster="DefaultCluster",node_id="broker-a",node_type="broker"'
    assert f"rocketmq_broker_permission{{{names}}} 6.0" in text
    assert 'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",' in text
    assert 'request_code="Prepare",response_code="OK"' in text
    assert "pyrocket_event_loop_held_total" in text
    assert f"pyrocket_damaged_messages_total{{{names}}} 0.0" in text
    assert f"pyrocket_dropped_traces_total{{{names}}} 0.0" in text
    process.terminate()
    _, logs = process.communicate(timeout=60)
    lines = [json.loads(line) for line in logs.splitlines()]
    assert [line["level"] for line in lines] == ["warning", "info", "warning", "info", "info"]
    assert lines[0]["message"] == "keys of broker.conf without effect: slaveReadEnable"
    assert lines[1]["message"].startswith(f"serving {path} at 127.0.0.1:")
    assert run("broker", "status", path).exit_code == 1


def test_the_running_state_describes_the_problem(tmp_path):
    state = RunningState(10, 10, 10, write_error=True, disk_full=True)
    assert state.permission == 4
    assert state.trouble == "a write or fsync failed, the disk is full"
    with Store.open(tmp_path, create=True) as store:
        found = running_state(store.path)
        assert found.permission == 6
        assert found.trouble == ""
        store.set_retention(Retention(clean_ratio=0, force_ratio=0, full_ratio=0))
        assert running_state(store.path).trouble == "the disk is full"


def test_a_scraper_that_sends_nothing_is_disconnected(monkeypatch):
    monkeypatch.setattr(monitoring, "_REQUEST_S", 0.2)
    server = monitoring.MonitoringServer("127.0.0.1", 0, None, str)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
        assert silent.recv(1) == b""
    server.close()


@pytest.mark.parametrize(
    ("module", "given"), [("grpc", []), ("prometheus_client", ["--metrics", "127.0.0.1:0"])]
)
def test_a_broker_without_its_extra_names_the_install_command(tmp_path, module, given):
    code = (
        f"import sys; sys.modules[{module!r}] = None; from pyrocket.tools.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "broker", str(tmp_path / "store"), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"broker needs {module}." in done.stderr
    assert "pip install '.[broker]'" in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not (tmp_path / "store").exists()


_FAILING = """
import os, runpy, sys
from pyrocket.disk import io

flag, sync = sys.argv.pop(1), io.sync

def fail(descriptor):
    if os.path.exists(flag):
        raise OSError(5, "Input/output error")
    sync(descriptor)

io.sync = fail
runpy.run_module("pyrocket", run_name="__main__")
"""


def test_a_broker_whose_fsync_failed_logs_one_error_and_exits_with_1(tmp_path):
    path, flag = tmp_path / "store", tmp_path / "broken"
    with Store.open(path, create=True) as store:
        store.topics.create("t")
    command = [sys.executable, "-c", _FAILING, flag, "broker", path, "--listen", "127.0.0.1:0"]
    arguments = [*map(str, command), "--flush", "sync", "--log-format", "json"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    with ending(process, path) as found:
        client = Client(Connection(found.listen[0]))
        sink, message = RemoteSink(client), Message(topic="t", body=b"x", queue_id=0)
        sink.send(message)
        flag.touch()
        with pytest.raises(StoreFailedError, match="Input/output"):
            sink.send(message)
        client.close()
        process.terminate()
        _, logs = process.communicate(timeout=60)
    assert process.returncode == 1
    lines = [json.loads(line) for line in logs.splitlines() if line.startswith("{")]
    (failure,) = [one["message"] for one in lines if one["level"] == "error"]
    assert "fsync of the log failed" in failure
