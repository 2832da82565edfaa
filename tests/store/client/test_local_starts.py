"""Broadcasting consumers keep where they start beside their offsets."""

import json

import pytest
from pyrocket import Message, Store
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import StoreDamagedError
from support.name_server import wait_until


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    with Store.open(folder, create=True) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        send(store, b"before")
    return str(folder)


def send(store, body, queue_id=0):
    store.append(Message(topic="orders", body=body, queue_id=queue_id))


def consumer(at, got):
    def listen(messages):
        got.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    broadcasting = {"message_model": "BROADCASTING", "subscriptions": {"orders": "*"}}
    return PushConsumer("billing", **at, listener=listen, **broadcasting)


def file_of(home, name):
    (file,) = home.glob(f".rocketmq_offsets/*@DEFAULT/billing/{name}")
    return file


def test_a_consumer_that_has_consumed_nothing_continues_where_it_started(path, at, home):
    with consumer(at, first := []):
        pass
    start = json.loads(file_of(home, "start.json").read_text())
    assert start["version"] == 1
    assert {*start["starts"]["orders"]["broker-a"]} == {"logOffset", "timeMs", "metMs"}
    with Store.open(path) as store:
        send(store, b"after")
    with consumer(at, second := []):
        wait_until(lambda: second)
    assert (first, second) == ([], [b"after"])


def test_a_consumer_of_an_older_release_reads_all_of_the_other_queues(path, at, home):
    with consumer(at, got := []):
        with Store.open(path) as store:
            send(store, b"consumed")
        wait_until(lambda: got)
    file_of(home, "start.json").unlink()
    with Store.open(path) as store:
        send(store, b"other queue", queue_id=1)
    with consumer(at, second := []):
        wait_until(lambda: second)
    assert second == [b"other queue"]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2, "starts": {}}', '{"version": 1}'])
def test_a_corrupt_file_of_starts_is_an_error_that_names_it(path, at, home, text):
    with consumer(at, []):
        pass
    file_of(home, "start.json").write_text(text)
    with pytest.raises(StoreDamagedError, match=r"start\.json cannot be parsed"):
        consumer(at, []).start()
