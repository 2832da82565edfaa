"""Remote reads return what local reads of the store return."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from pyrocket import (
    MessageFilter,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    ScanTally,
    Store,
    decode_slices,
)
from pyrocket.broker.source import StoreSource
from pyrocket.errors import (
    GroupNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.record_slice import empty_slice
from pyrocket.formats.wire_block import decode_block, encode_block
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.remote.source import RemoteSource
from pyrocket.wire.blocks import blocks_in, blocks_of
from pyrocket.wire.descriptors import message_class
from pyrocket.wire.messages import fill, values_of
from support.broker import served

COLUMNS = ("queueId", "queueOffset", "physicalOffset", "tags", "body")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with Store.open(tmp_path_factory.mktemp("store"), create=True) as store:
        store.topics.create("orders", read_queues=3, write_queues=3)
        store.topics.create("secrets")
        for first in range(0, 3000, 500):
            rows = range(first, first + 500)
            bodies = pa.array([b"%d " % row * (row % 300) for row in rows], pa.binary())
            tags = pa.array(["even" if row % 2 == 0 else "odd" for row in rows])
            batch = pa.record_batch({"body": bodies, "tags": tags, "keys": pa.array([["k"]] * 500)})
            store.append_batch(batch, topic="orders")
            store.append_batch(batch.select(["body"]), topic="secrets")
        store.append_batch(pa.record_batch({"body": [b"x" * 3_000_000]}), topic="orders")
        with served(store) as address:
            client = Client(Connection(address))
            yield store, client
            client.close()


def value(reply, hint):
    return values_of(reply, {"value": hint})["value"]


def bounds(client, *topics):
    return value(client.call("Bounds", topics=topics), dict[MessageQueue, QueueOffsets])


def ranges(client, topic="orders"):
    found = bounds(client, topic)
    return [QueueRange(queue, each.minimum, each.maximum) for queue, each in found.items()]


def slices(client, wanted, tally=None, **arguments):
    return RemoteSource(client).slices(wanted, tally=tally, **arguments)


def read(client, wanted, tally=None, **arguments):
    batches = [
        batch
        for each in wanted
        for batch in decode_slices(slices(client, [each], tally, **arguments), COLUMNS)
    ]
    return pa.Table.from_batches(batches)


def local(store, wanted, **arguments):
    batches = [
        batch
        for each in wanted
        for batch in store.scan(
            each.queue.topic, each.queue.queue_id, each.start, each.end, COLUMNS, **arguments
        )
    ]
    return pa.Table.from_batches(batches)


def test_each_block_has_the_index_of_its_range(place):
    """A read that resumes after a lost connection continues in this range."""
    store, _ = place
    queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    ranges = [
        QueueRange(queues[0], 0, 300),
        QueueRange(queues[0], 300, 301),
        QueueRange(queues[2], 7, 900),
        QueueRange(queues[1], 0, 5),
    ]
    source, tally = StoreSource(store), ScanTally()
    sent = blocks_of(source.slices(ranges, tally=tally), tally, ranges)
    asked = [each.queue for each in ranges]
    received = blocks_in(sent, asked, store.config.log_file_bytes, ScanTally())
    rows = Counter()
    for at, part in received:
        assert part.queue == ranges[at].queue
        assert ranges[at].start <= part.first_offset < ranges[at].end
        rows[at] += len(part)
    assert rows == {at: each.rows for at, each in enumerate(ranges)}


def test_a_joined_slice_without_matching_messages_is_empty(place):
    _, client = place
    wanted = [QueueRange(each.queue, 5, 8) for each in ranges(client)]
    tally, where = ScanTally(), MessageFilter.parse(tags="neither")
    joined = RemoteSource(client).joined_slice(wanted, where=where, tally=tally)
    assert joined.decode_in_order(COLUMNS).num_rows == 0
    assert tally == ScanTally(entries=9)


def test_a_remote_filter_selects_and_counts_the_same_rows_as_a_local_filter(place):
    store, client = place
    where = MessageFilter.parse(tags="odd")
    wanted, tally, counted = ranges(client), ScanTally(), ScanTally()
    rows = read(client, wanted, tally, where=where)
    expected = local(store, wanted, where=where, tally=counted)
    assert rows.num_rows == 1500
    assert rows.to_pylist() == expected.to_pylist()
    assert tally == counted


def test_blocks_contain_no_bytes_of_other_topics(place):
    _, client = place
    for each in ranges(client):
        for block in client.stream("Slices", ranges=[each]):
            assert b"secrets" not in block


def test_a_scan_that_selects_no_messages_reports_its_progress(place, monkeypatch):
    _, client = place
    monkeypatch.setattr("pyrocket.server.service._WINDOW", 100)
    each = ranges(client)[0]
    where = MessageFilter.parse(tags="neither")
    blocks = [*client.stream("Slices", ranges=[each], where=where)]
    counted = [decode_block(block, [each.queue], 1).entries for block in blocks]
    assert max(counted) == 100
    assert sum(counted) == each.rows


def test_a_long_error_text_is_shortened(tmp_path):
    store = Store.open(tmp_path, create=True)
    for number in range(300):
        store.groups.create(f"group-{number:0100}")
    with served(store) as address, pytest.raises(GroupNotFoundError) as caught:
        Client(Connection(address)).call("Group", group="none")
    assert caught.value.remedy.endswith("…")


def test_cancelling_a_stream_during_a_read_logs_no_error(tmp_path, monkeypatch, caplog):
    reading, closed = threading.Event(), threading.Event()

    def slow(*_, **__):
        try:
            yield from ()
            reading.set()
            time.sleep(0.3)
            yield empty_slice(MessageQueue("t", "b", 0))
        finally:
            closed.set()

    monkeypatch.setattr(StoreSource, "slices", slow)
    store = Store.open(tmp_path, create=True)
    store.topics.create("t")
    with served(store) as address:
        connection = Connection(address)
        asked = [QueueRange(MessageQueue("t", "b", 0), 0, 9)]
        request = fill(message_class("pyrocket.v1.SlicesRequest")(), {"ranges": asked})
        call = connection.channel.unary_stream("/pyrocket.v1.Broker/Slices")(
            request.SerializeToString()
        )
        assert reading.wait(10)
        call.cancel()
        assert closed.wait(10)
        connection.close()
    assert "unexpectedly" not in caplog.text


@pytest.mark.parametrize("cut", [0, 5, 31, 40, -1])
def test_malformed_blocks_are_rejected(place, cut):
    _, client = place
    block = next(iter(client.stream("Slices", ranges=ranges(client))))
    with pytest.raises(UnsupportedError) as caught:
        decode_block(block[:cut], [MessageQueue("orders", "b", 0)], 1 << 30)
    assert caught.value.code == "PROTOCOL_BROKEN"


def test_a_block_without_records_contains_counts():
    block = decode_block(encode_block(None, entries=7, records=3), [MessageQueue("t", "b", 0)], 1)
    assert (block.entries, block.records, block.part) == (7, 3, None)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("view", ["commitlog", "topics"])
def test_the_read_of_a_view_resumes_after_a_lost_connection(place, monkeypatch, view, after):
    """Five streams lose their connection after `after` batches; the sixth stream completes."""
    store, client = place
    monkeypatch.setattr("pyrocket.base.clock.FIRST_S", 0.001)
    source, stream, cuts = RemoteSource(client), Client.stream, [5]

    def lossy(client, name, /, **arguments):
        for number, reply in enumerate(stream(client, name, **arguments)):
            if cuts[0] and number == after:
                cuts[0] -= 1
                raise TransportError("lost", repeat_is_safe=True)
            yield reply

    monkeypatch.setattr(Client, "stream", lossy)
    columns = ["topic", "queueOffset", "body"] if view == "commitlog" else ["topic", "messages"]
    (part,) = store.views.plan(view)
    read = pa.Table.from_batches(source.read_view(part, columns, verify_crc=False))
    assert read == pa.Table.from_batches(store.views.scan(part, columns))
    assert cuts[0] < 5 or view == "topics"


@pytest.mark.parametrize(("is_safe", "calls"), [(True, 3), (False, 1)])
def test_a_joined_slice_is_asked_for_again_only_if_that_is_safe(place, monkeypatch, is_safe, calls):
    _, client = place
    monkeypatch.setattr("pyrocket.base.clock.FIRST_S", 0.001)
    source, stream, seen = RemoteSource(client), Client.stream, []
    wanted = [QueueRange(each.queue, 5, 8) for each in ranges(client)]

    def lossy(client, name, /, **arguments):
        seen.append(name)
        if len(seen) < 3:
            raise TransportError("lost", repeat_is_safe=is_safe)
        return stream(client, name, **arguments)

    monkeypatch.setattr(Client, "stream", lossy)
    if is_safe:
        assert len(source.joined_slice(wanted)) == 9
    else:
        with pytest.raises(TransportError, match="lost"):
            source.joined_slice(wanted)
    assert len(seen) == calls


def test_an_unknown_field_is_rejected():
    from pyrocket.wire.descriptors import message_class

    with pytest.raises(KeyError):
        fill(message_class("pyrocket.v1.HelloRequest")(), {"relaese": "1"})
