"""A pull consumer over a store of this process, and over a broker."""

import threading
import time

import pytest
from pyrocket import Message, MessageQueue, Store
from pyrocket.client.producer import Producer
from pyrocket.client.pull_consumer import PullConsumer
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    QueueNotFoundError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.values.consuming import Committed, PullStatus
from pyrocket.values.message import QueueOffsets

FIRST, SECOND = (MessageQueue("orders", "broker-a", number) for number in range(2))


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    with Store.open(folder, create=True) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        for number in range(6):
            tags = "even" if number % 4 < 2 else "odd"
            body = b"%d" % number
            store.append(Message(topic="orders", body=body, tags=tags, queue_id=number % 2))
    return str(folder)


def consumer(at, **settings):
    return PullConsumer("reports", **at, **{"consume_from": "first", **settings})


@pytest.fixture
def running(at):
    with consumer(at) as running:
        yield running


def poll_all(running, count):
    """Return the bodies of the next messages, of which there are exactly `count`."""
    found, end = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found += [message.body for message in running.poll(1, 10)]
    return found + [message.body for message in running.poll(0.1)]


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_assigned_queues_are_read_and_committed_and_read_on_after_a_restart(path, running, at):
    assert running.queues("orders") == [FIRST, SECOND]
    running.assign([FIRST, SECOND])
    assert running.assigned() == [FIRST, SECOND]
    assert sorted(poll_all(running, 6)) == [b"%d" % number for number in range(6)]
    assert running.position(FIRST) == 3
    assert running.commit() == {FIRST: Committed(0, 3, 3), SECOND: Committed(0, 3, 3)}
    assert running.committed(FIRST) == 3
    running.close()
    with Store.open(path) as store:
        store.append(Message(topic="orders", body=b"new", queue_id=0))
    with consumer(at) as again:
        again.assign([FIRST, SECOND])
        assert poll_all(again, 1) == [b"new"]


def test_nothing_is_committed_unless_the_caller_does_so(path, running):
    running.assign([FIRST])
    poll_all(running, 3)
    running.close()
    with Store.open(path, read_only=True) as store:
        assert store.groups.committed("reports", "orders") == {}


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_poll_waits_for_a_message(at, running):
    running.assign([FIRST])
    poll_all(running, 3)

    def send():
        with Producer(**at) as producer:
            producer.send(Message(topic="orders", body=b"late"), queue=FIRST)

    later = threading.Timer(0.3, send)
    later.start()
    began = time.monotonic()
    assert [message.body for message in running.poll(30)] == [b"late"]
    assert time.monotonic() - began < 10
    later.join()


def test_a_seek_to_an_end_of_a_queue(running):
    running.assign([FIRST])
    running.seek_to_end(FIRST)
    assert running.position(FIRST) == 3
    running.seek_to_begin(FIRST)
    assert poll_all(running, 3) == [b"0", b"2", b"4"]


def test_tags_select_messages(path, at):
    with consumer(at, subscriptions={"orders": "odd"}) as running:
        running.assign([FIRST, SECOND])
        assert sorted(poll_all(running, 2)) == [b"2", b"3"]


def test_a_pull_returns_messages_and_the_offsets_of_the_queue(running):
    running.assign([FIRST])
    pulled = running.pull(FIRST, 1, max_messages=1)
    assert [message.body for message in pulled.messages] == [b"2"]
    assert (pulled.next_offset, pulled.available) == (2, QueueOffsets(0, 3))
    assert running.pull(FIRST, 9).status is PullStatus.OFFSET_ILLEGAL
    assert running.position(FIRST) == 0


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_the_offset_at_a_time_is_found(running):
    assert running.offset_at(FIRST, 0) == 0
    assert running.offset_at(FIRST, 2**41) == 3


def test_an_asynchronous_commit_reports_its_result(running):
    running.assign([FIRST])
    reported = threading.Event()
    done = running.commit_async({FIRST: 2}, lambda future: reported.set())
    assert done.result(30) == {FIRST: Committed(0, 3, 2)}
    assert reported.wait(30)


class TestMisuse:
    def test_a_missing_topic_or_queue_is_an_error(self, running):
        with pytest.raises(TopicNotFoundError):
            running.queues("missing")
        with pytest.raises(QueueNotFoundError):
            running.bounds(MessageQueue("orders", "broker-a", 7))

    def test_a_commit_without_an_assignment_is_an_error(self, running):
        with pytest.raises(InvalidInputError, match="COMMIT_FENCED"):
            running.commit({FIRST: 1})

    def test_invalid_arguments_are_errors(self, running):
        with pytest.raises(OptionError):
            running.poll(-1)
        with pytest.raises(InvalidInputError):
            running.poll(1, 0)
        with pytest.raises(InvalidInputError):
            running.seek(FIRST, -1)

    def test_a_consumer_that_is_not_running_is_an_error(self, path, at):
        one = consumer(at)
        with pytest.raises(InvalidInputError, match="CLIENT_NOT_STARTED"):
            one.poll()
        one.close()
        with pytest.raises(StoreUnavailableError, match="CLIENT_CLOSED"):
            one.poll()


def test_the_name_of_a_topic_assigns_all_its_queues(at):
    with consumer(at) as one:
        one.assign("orders")
        assert one.assigned() == one.queues("orders") == [FIRST, SECOND]
        with pytest.raises(TopicNotFoundError, match="'order'"):
            one.assign("order")
