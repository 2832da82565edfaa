"""The transport of clusters keeps its promises on RocketMQ's own servers."""

import pytest
from pyrocket import MessageFilter, QueueRange, ScanTally
from pyrocket.errors import OffsetOutOfRangeError, TopicNotFoundError
from pyrocket.formats.record_slice import decode_slices
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport.namesrv import NamesrvTarget
from support.remoting_contract import Client, eventually, topic

__all__ = ["topic"]

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture(scope="module")
def client(java_version, tmp_path_factory):
    folder = tmp_path_factory.mktemp("namesrv") / "store"
    with java_version.broker(folder, autoCreateSubscriptionGroup="false"):
        client = Client([f"127.0.0.1:{java_version.peer.port}"])
        yield client
        client.close()


@pytest.fixture
def target(client, java_version, topic):
    """Four messages in each of two queues of a topic."""
    client.create(topic)
    for queue in range(2):
        for at in range(4):
            body, tag = f"{queue}-{at}".encode(), "AB"[at % 2]
            client.send(topic, body, queue_id=queue, properties=f"TAGS\x01{tag}\x02")
    target = NamesrvTarget(
        Endpoint(name_servers=(f"127.0.0.1:{java_version.peer.port}",)), (topic,)
    )
    yield target
    target.close_source()


@pytest.fixture
def broker(target):
    return target.open_source().by_broker()["broker-a"]


def whole(source, topic):
    return [QueueRange(q, has.minimum, has.maximum) for q, has in source.bounds([topic]).items()]


def bodies(slices):
    return [body.as_py() for part in decode_slices(slices, ["body"]) for body in part["body"]]


def test_messages_are_planned_and_read(broker, topic):
    ranges = whole(broker, topic)
    assert [(each.start, each.end) for each in ranges] == [(0, 4), (0, 4)]
    assert bodies(broker.slices(ranges)) == [
        f"{queue}-{at}".encode() for queue in range(2) for at in range(4)
    ]
    tally, where = ScanTally(), MessageFilter.parse(tags="A")
    assert bodies(broker.slices(ranges[:1], where=where, tally=tally)) == [b"0-0", b"0-2"]
    assert (tally.entries, tally.messages) == (4, 2)
    joined = broker.joined_slice([*reversed(ranges)], where=MessageFilter.parse(tags="B"))
    rows = joined.decode_in_order(("body",)).column(0).to_pylist()
    assert rows == [b"1-1", b"1-3", b"0-1", b"0-3"]
    with pytest.raises(OffsetOutOfRangeError):
        list(broker.slices([QueueRange(ranges[0].queue, 0, 9)]))


def test_offsets_by_time_are_exact(broker, topic):
    ranges = whole(broker, topic)
    queue = ranges[0].queue
    times = [
        stored.as_py()
        for part in decode_slices(broker.slices(ranges[:1]), ["storeTimestamp"])
        for stored in part["storeTimestamp"].cast("timestamp[ms]").cast("int64")
    ]
    for at, time_ms in enumerate(times):
        assert broker.offsets_at({queue: time_ms}) == {queue: times.index(time_ms)}
        assert broker.offsets_at({queue: time_ms + 1})[queue] > at
    assert broker.offsets_at({queue: 0, ranges[1].queue: 4 * 10**12}) == {
        queue: 0,
        ranges[1].queue: 4,
    }


def test_a_mark_belongs_to_the_newest_message(broker, topic):
    ends = {each.queue: each.end for each in whole(broker, topic)}
    mark = broker.mark(ends)
    assert mark == broker.mark({queue: at for queue, at in ends.items() if queue.queue_id == 1})
    assert broker.holds(mark)
    assert broker.holds(type(mark)(mark.log_offset, mark.store_timestamp, 1)) is False
    assert broker.holds(type(mark)(mark.log_offset + 7, mark.store_timestamp, 1)) is False


def test_sizes_are_those_of_the_messages(broker, topic):
    ranges = whole(broker, topic)
    sizes = [span.bytes for span in broker.sizes(ranges)]
    for each, size in zip(ranges, sizes, strict=True):
        parts = decode_slices(broker.slices([each]), ["storeSize"])
        assert size == sum(one.as_py() for part in parts for one in part["storeSize"])
    assert broker.split_at_bytes([(ranges[0], [1, 2**40])]) == [[(0, 0), (4, sizes[0])]]


def test_a_group_is_created_and_never_moves_backwards(broker, topic):
    ends, group = {each.queue: each.end for each in whole(broker, topic)}, f"G-{topic}"
    assert broker.commit(group, {}) == {}
    assert broker.commit(group, ends) == ends == broker.committed(group, [topic])
    assert broker.commit(group, dict.fromkeys(ends, 1)) == ends == broker.committed(group)
    assert set(broker.commit(group, dict.fromkeys(ends, 1), backwards=True).values()) == {1}


def test_a_missing_topic_is_not_found(target, broker, topic):
    with pytest.raises(TopicNotFoundError):
        target.open_source().topic(f"{topic}-none")
    assert broker.bounds([f"{topic}-none"]) == {}


def test_a_stream_reads_what_is_sent(client, target, topic):
    options = {**target.options, "topic": topic, "startingOffsets": "earliest"}
    reader = DefaultSource(options).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    tasks = reader.partitions(start, end)
    assert sum(part.num_rows for task in tasks for part in reader.read(task)) == 8
    client.send(topic, b"new")
    later = eventually(lambda: (found := reader.latestOffset(end, None)) != end and found)
    (task,) = reader.partitions(end, later)
    assert [row.as_py() for part in reader.read(task) for row in part["body"]] == [b"new"]
    reader.stop()
