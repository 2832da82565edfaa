"""Broadcasting consumers keep where they start beside their offsets."""

import asyncio
import json

import pytest
from pyrocket import Message, Store
from pyrocket.base.failures import Failures
from pyrocket.client import local_offsets
from pyrocket.client.core.offsets import save
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.local_offsets import LocalOffsets
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from pyrocket.disk.io import replace_file
from pyrocket.errors import StoreDamagedError
from pyrocket.values.consuming import GroupPosition
from pyrocket.values.message import MessageQueue
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


def test_offsets_that_could_not_be_written_are_written_later(home, monkeypatch):
    """The disk was full."""
    queue, full = MessageQueue("orders", "a", 0), [OSError(28, "No space left on device")] * 2

    def replaced(*given, **more):
        if full:
            raise full.pop()
        return replace_file(*given, **more)

    monkeypatch.setattr(local_offsets, "replace_file", replaced)
    written = LocalOffsets("c1@DEFAULT", "billing", None)
    held, failures = ProcessQueue(queue, GroupPosition(0)), Failures()
    held.next_offset = 3
    saved = [asyncio.run(save(written, [held], failures)) for _ in range(3)]
    assert (saved, failures.task_errors) == ([False, False, True], 2)
    again = LocalOffsets("c1@DEFAULT", "billing", None)
    assert asyncio.run(again.start(queue)).offset == 3
