"""`pyrocket checkpoint` names the store as all commands do, at a broker or a cluster, too."""

import pytest
from pyrocket import Message, Store
from pyrocket.server.nameserver.route_table import RouteTable
from support import name_server
from support.broker import served
from support.rocketmq_cluster import rocketmq
from support.spark_checkpoints import SETTINGS, Files, run, run_json
from support.transports import disconnect, register
from support.users import access_of, secret_of


@pytest.fixture(autouse=True)
def connections():
    yield
    disconnect()


@pytest.mark.parametrize("known", [False, True], ids=["broker", "name server"])
def test_a_query_is_moved_and_shown_through_its_broker(files, known):
    table = RouteTable()
    with Store.open(files.box.path) as store, served(store) as broker:
        register(table, "broker-a", broker)
        with name_server.serving(table) as servers:
            place = ("--endpoint", servers if known else broker)
            assert "t      0      2            0      2    0\n" in run("show", files.path, *place)
            done = run_json("reset", files.path, *place, "--to", '{"t":{"0":1}}', "--yes")
            assert done["after"] == {"t": {"0": 1, "1": 2}}
            assert files.offset(2)["initial"] is True


def test_the_user_needs_the_right_to_subscribe(files, tmp_path):
    users = access_of(tmp_path, spark=("subscribe", "t"), guest=("subscribe", "others"))
    secret = tmp_path / "secret"
    with Store.open(files.box.path) as store, served(store, access=lambda: users) as address:
        for user, status in (("guest", 2), ("spark", 0)):
            secret.write_text(secret_of(user))
            place = ("--endpoint", address, "--access-key", user, "--secret-key-file", secret)
            arguments = (files.path, *place, "--to", "earliest", "--yes")
            run_json("reset", *arguments, status=status)


def test_a_query_of_a_cluster_of_rocketmq_is_moved(tmp_path):
    with rocketmq(tmp_path / "cluster", brokers=("broker-a", "broker-b")) as made:
        servers = ";".join(made.addresses)
        for broker in made.brokers:
            broker.store.topics.create("t", read_queues=1, write_queues=1)
            broker.store.append(Message(topic="t", body=b"x"))
        files = Files(tmp_path / "checkpoint", None, namesrv=servers, topic="t")
        files.plan()
        files.commit()
        place = ("--namesrv", servers)
        assert "broker-b:0  1            0      1    0\n" in run("show", files.path, *place)
        arguments = (files.path, *place, "--to", '{"t":{"broker-b":{"0":0}}}', "--yes")
        done = run_json("reset", *arguments)
        assert done["after"] == {"t": {"broker-a:0": 1, "broker-b:0": 0}}
        moved = {"broker-a": {"0": 1}, "broker-b": {"0": 0}}
        assert files.offset(1)["offsets"] == {"t": moved}


def test_a_single_broker_of_several_is_refused(files):
    place = ("--endpoint", "127.0.0.1:1", "--broker", "broker-a")
    error = run_json("reset", files.path, *place, "--to", "earliest", status=2)["error"]
    assert error["code"] == "OPTION_UNSUPPORTED"
    assert "--broker" in error["remedy"]


def test_a_query_without_a_source_of_ours_has_nothing_to_move(files):
    files.put("offsets/2", f'v1\n{SETTINGS}\n{{"rate": 1}}')
    place = ("--path", files.box.path)
    run("show", files.path, *place)
    error = run_json("reset", files.path, *place, "--to", "earliest", status=2)["error"]
    assert error["code"] == "CHECKPOINT_SOURCE"
