"""Spark, the command line and the notebook show the same messages as clients of RocketMQ's
protocol, over the broker and in its directory.
"""

import json
import time
from dataclasses import dataclass

import pytest
from pyrocket import Store
from pyrocket.server.messaging.interface import number
from pyrocket.tools import notebook
from pyrocket.values.admin import Backoff
from support.broker_process import running
from support.commands import run
from support.direct import read
from support.rocketmq_stub import Stub, code_of, queue, resource
from support.shares import share
from support.transports import disconnect

HOUR_MS = 3_600_000
GROUP, TOPIC = "g", "t"


@dataclass
class Shop:
    """A store whose group g has acked message 0, nacked 1, dead-lettered 2, and has 3 in flight.

    Message 4 was never received. Topic `later` has a delayed message, `halves` an undecided one.
    """

    path: str
    address: str
    stub: Stub

    def target(self, kind):
        return {"path": self.path} if kind == "path" else {"endpoint": self.address}

    def receive(self, count, group=GROUP):
        replies = self.stub.call(
            "ReceiveMessage",
            group=resource(group),
            message_queue=queue(TOPIC),
            batch_size=count,
            invisible_duration={"seconds": 3600},
            long_polling_timeout={"seconds": 1},
        )
        return [one.message for one in replies[1:-1]]

    def change(self, call, message, **fields):
        handle = message.system_properties.receipt_handle
        names = {"group": resource(GROUP), "topic": resource(TOPIC)}
        assert self.stub.code(call, **names, receipt_handle=handle, **fields) == "OK"

    def ack(self, message):
        handle = message.system_properties.receipt_handle
        reply = self.stub.call(
            "AckMessage",
            group=resource(GROUP),
            topic=resource(TOPIC),
            entries=[{"message_id": "x", "receipt_handle": handle}],
        )
        assert code_of(reply) == "OK"

    def committed(self, group):
        found = self.stub.call("GetOffset", group=resource(group), message_queue=queue(TOPIC))
        return found.offset if code_of(found) == "OK" else None

    def play(self):
        send = self.stub.send
        assert code_of(send(*(b"%d" % n for n in range(5)), topic=TOPIC)) == "OK"
        due = int(time.time() * 1000) + HOUR_MS
        delay = number("MessageType", "DELAY")
        send(b"later", topic="later", deliver_ms=due, message_type=delay)
        send(b"half", topic="halves", message_type=number("MessageType", "TRANSACTION"))
        acked, failed, killed, _ = self.receive(4)
        self.ack(acked)
        self.change("ForwardMessageToDeadLetterQueue", killed)
        for attempt in (2, 3, None):
            self.change("ChangeInvisibleDuration", failed, invisible_duration={})
            if attempt:
                (failed,) = self.receive(1)
                assert failed.system_properties.delivery_attempt == attempt
        wait_until(lambda: self.committed(GROUP) == 3)


def wait_until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "store"
    with Store.open(path, create=True) as store:
        for topic in (TOPIC, "later", "halves"):
            store.topics.create(topic, read_queues=1, write_queues=1)
        store.groups.create(GROUP)
        store.groups.update(GROUP, backoff=Backoff((600_000,)))
    with running(path) as (_, found):
        shop = Shop(str(path), found.listen[0], Stub(found.listen[0]))
        shop.play()
        yield shop
        shop.stub.close()
        disconnect()


def rows(options, *columns):
    """Return columns of the rows that the tasks of a batch read."""
    return sorted(tuple(row[name] for name in columns) for row in read(options))


@pytest.fixture(params=share(["endpoint", "path"], 1))
def target(request, shop):
    return shop.target(request.param)


def test_retries_and_dead_letters_are_rows(target):
    retry = rows({**target, "view": "retry"}, "consumerGroup", "originTopic", "body", "consumed")
    assert retry == [(GROUP, TOPIC, b"1", False)]
    dead = rows({**target, "view": "dlq", "group": GROUP}, "consumerGroup", "originTopic", "body")
    assert dead == [(GROUP, TOPIC, b"2")]


def test_undecided_and_delayed_messages_are_rows(target):
    assert rows({**target, "view": "half"}, "topic", "body") == [("halves", b"half")]
    delayed = rows({**target, "view": "scheduled"}, "topic", "body")
    assert delayed == [(f"%RETRY%{GROUP}", b"1"), ("later", b"later")]


def test_a_batch_starts_at_the_first_message_that_the_group_has_not_acked(target):
    options = {**target, "subscribe": TOPIC, "startingOffsets": "committed", "group": GROUP}
    assert rows(options, "body") == [(b"3",), (b"4",)]


@pytest.fixture(params=share(["endpoint", "path"], 1))
def document(request, shop):
    """Run a command on the store, and return its JSON."""
    ((kind, value),) = shop.target(request.param).items()
    return lambda *words: json.loads(run(*words, f"--{kind}", value, "--json").stdout)


def test_the_command_line_shows_the_group(document, shop):
    (lag,) = [one for one in document("group", "lag", GROUP)["lag"] if one["topic"] == TOPIC]
    assert (lag["committedOffset"], lag["lag"]) == (3, 2)
    (shown,) = document("offset", "show", GROUP, TOPIC)["offsets"]
    assert (shown["committedOffset"], shown["maxOffset"]) == (3, 5)
    (letter,) = document("dlq", "list", GROUP)["messages"]
    assert (letter["body"], letter["originTopic"]) == ("2", TOPIC)
    (found,) = document("message", "find", TOPIC, "--id", letter["msgId"])["messages"]
    assert (found["body"], found["queueOffset"]) == ("2", 2)
    assert [one["body"] for one in document("message", "tail", TOPIC)["messages"]] == [
        *("0", "1", "2", "3", "4")
    ]


@pytest.fixture(params=share(["endpoint", "path"], 1))
def opened(request, shop):
    if request.param == "path":
        yield shop.path
        return
    session = notebook.at(shop.address)
    yield session
    session.close()


def test_the_notebook_shows_the_group(opened):
    table = notebook.lag(opened, GROUP)
    where = [table.columns.index(name) for name in ("topic", "committed", "maximum", "lag")]
    assert (TOPIC, 3, 5, 2) in [tuple(row[n] for n in where) for row in table.rows]
    letters = notebook.peek(opened, f"%DLQ%{GROUP}")
    assert [row[letters.columns.index("body")] for row in letters.rows] == [b"2"]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pytest.param("path", marks=pytest.mark.heavy), "endpoint"])
def test_streams_start_after_the_messages_acked_by_a_consumer_and_commit_offsets_for_another(
    shop, spark, tmp_path, kind
):
    """While a broker serves the directory, only streams over `endpoint` can commit."""
    commits = {"commitToGroup": "spark"} if kind == "endpoint" else {}
    source = spark.readStream.format("pyrocket").options(**shop.target(kind), **commits)
    query = (
        source.options(subscribe=TOPIC, startingOffsets="committed", group=GROUP)
        .schema("body STRING")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination(120)
    query.stop()
    rows_read = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.body for row in rows_read) == ["3", "4"]
    if commits:
        assert shop.committed("spark") == 5
        assert shop.receive(1, group="spark") == []
        assert len(shop.receive(10, group="another")) == 5
