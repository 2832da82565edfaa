"""The contract of every transport. Add a new one to `support.transports.TRANSPORTS`."""

import pickle
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from pyrocket import LookupRequest, MessageFilter, QueueRange, ScanTally, SinkBatch
from pyrocket.errors import (
    OffsetOutOfRangeError,
    OptionError,
    PyrocketError,
    StoreNotSharedError,
    TopicNotFoundError,
    TransportError,
)
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.source.partitions import Ranges, ReadPartition
from pyspark_pyrocket.source.planner import batch_partitions
from pyspark_pyrocket.source.task import rows_of
from pyspark_pyrocket.transport.interface import Capability
from pyspark_pyrocket.transport.path import PathTarget, forget
from support.offsets import as_asked
from support.shares import share
from support.slices import decoded
from support.stores import batch
from support.transports import OF_ONE_BROKER, TRANSPORTS, UNRELIABLE, WRITABLE

SCHEMA = default_columns(kafka=False, headers=False, text=False)


def queue_of(name):
    """Return four messages of one queue."""
    keys = pa.array([[f"k{name}-{at}"] for at in range(4)], pa.list_(pa.string()))
    tags = pa.array(["A", "B", "A", "B"])
    return batch([f"{name}-{at}".encode() for at in range(4)], name, keys=keys, tags=tags)


@contextmanager
def filled(kind, folder):
    """Yield a store with four messages in each of the two queues of topic t."""
    with TRANSPORTS[kind](folder) as made:
        made.send("t", queue_of(0), queue_of(1), queues=2)
        yield made


@pytest.fixture(params=TRANSPORTS)
def made(request, tmp_path):
    with filled(request.param, tmp_path) as made:
        yield made


@pytest.fixture(scope="module", params=TRANSPORTS)
def kept(request, tmp_path_factory):
    with filled(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture
def target(made):
    return made.target


@pytest.fixture
def source(target):
    return target.open_source()


@pytest.fixture
def broker(source):
    """The source of the broker that has topic t."""
    return next(one for one in source.by_broker().values() if "t" in one.topics())


@pytest.fixture
def sink(target):
    sink = target.open_sink()
    yield sink
    sink.close()


writable = pytest.mark.parametrize("made", WRITABLE, indirect=True)
"""For tests of exactly-once sinks."""


def whole(source):
    return [QueueRange(q, has.minimum, has.maximum) for q, has in source.bounds(["t"]).items()]


def bodies(slices):
    return [body for part in decoded(slices) for body in part.column(0).to_pylist()]


class TestReads:
    """These tests change nothing, so they share the stores."""

    @pytest.fixture
    def made(self, kept):
        return kept

    def test_one_call_covers_all_queues(self, source):
        ranges = whole(source)
        assert [each.rows for each in ranges] == [4, 4]
        queues = [each.queue for each in ranges]
        assert source.queue_bounds(queues) == source.bounds(["t"])
        assert source.offsets_at(dict.fromkeys(queues, 0)) == dict.fromkeys(queues, 0)
        sizes = [span.bytes for span in source.sizes(ranges)]
        found = source.split_at_bytes([(each, [1, 2**40]) for each in ranges])
        assert found == [[(0, 0), (4, size)] for size in sizes]

    def test_a_missing_topic_is_reported(self, source):
        assert set(source.topics()) >= {"t"}
        with pytest.raises(TopicNotFoundError):
            source.topic("u")

    def test_slices_can_be_closed_early_and_resumed_at_an_offset(self, broker):
        first = whole(broker)[0]
        slices = broker.slices([QueueRange(first.queue, 0, 2)])
        resumed = next(slices).next_offset
        slices.close()
        rest = broker.slices([QueueRange(first.queue, resumed, first.end)])
        assert bodies(rest) == [b"0-2", b"0-3"]

    def test_small_ranges_are_returned_as_one_slice_in_their_order(self, broker):
        ranges = [replace(each, start=1) for each in reversed(whole(broker))]
        tally, where = ScanTally(), MessageFilter.parse(tags="B")
        joined = broker.joined_slice(ranges, where=where, tally=tally)
        rows = joined.decode_in_order(("body",)).column(0).to_pylist()
        assert rows == [b"1-1", b"1-3", b"0-1", b"0-3"]
        assert (tally.entries, tally.messages) == (6, 4)

    def test_a_tally_counts_the_messages_that_a_read_has_examined(self, broker):
        tally = ScanTally()
        where = MessageFilter.parse(tags="A")
        assert bodies(broker.slices(whole(broker)[:1], where=where, tally=tally)) == [
            b"0-0",
            b"0-2",
        ]
        assert (tally.entries, tally.records, tally.messages) == (4, 2, 2)

    def test_a_range_that_does_not_exist_is_rejected(self, broker):
        first = whole(broker)[0]
        with pytest.raises(OffsetOutOfRangeError):
            list(broker.slices([QueueRange(first.queue, 0, 9)]))

    def test_messages_are_found_by_key_and_read_at_their_locations(self, broker):
        located = broker.locate(LookupRequest(topics=["t"], keys=["k1-2", "k1-3", "k9"]))
        (places,) = located.locations
        assert (places.topic, places.queue_id, places.queue_offsets.tolist()) == ("t", 1, [2, 3])
        assert bodies(broker.slices_at(places)) == [b"1-2", b"1-3"]

    def test_a_mark_belongs_to_the_newest_message_before_some_offsets(self, broker):
        offsets = {each.queue: each.end for each in whole(broker)}
        mark = broker.mark(offsets)
        assert mark == broker.mark({each: at for each, at in offsets.items() if each.queue_id == 1})
        assert broker.holds(mark)
        assert broker.mark(dict.fromkeys(offsets, 0)) is None

    def test_no_queue_is_truncated_since_the_current_epoch(self, source):
        epochs = {broker: known.epoch for broker, known in source.identities().items()}
        assert source.truncations(epochs, list(source.bounds(["t"]))) == {}

    def test_a_batch_is_planned_and_read_by_its_tasks(self, source):
        tasks = pickle.loads(pickle.dumps(batch_partitions(source, as_asked())))
        rows = [
            row for task in tasks for each in rows_of(task, ("body",), as_asked()) for row in each
        ]
        assert sum(map(len, rows)) == 8

    def test_the_target_of_a_task_is_small_and_opens_only_the_drivers_store(self, made, broker):
        pinned = broker.target
        assert pickle.loads(pickle.dumps(pinned)) == pinned
        assert len(pickle.dumps(pinned)) < 500
        assert made.target.store_id is None
        assert pinned.open_source().identities() == broker.identities()
        with pytest.raises(StoreNotSharedError):
            pinned.of_store("another").open_source()

    def test_a_private_source_is_closed_separately(self, target, source):
        target.open_own_source().close()
        assert [each.rows for each in whole(source)] == [4, 4]


def test_a_topic_that_a_sink_must_not_create_is_reported(sink):
    with pytest.raises(TopicNotFoundError):
        sink.prepare("u", create=False)


def test_the_version_changes_with_the_first_new_message(made, source):
    assert source.version() == source.version()
    before = source.version()
    made.send("t", batch([b"new"], 0))
    # Over a network, the notification of a change takes some time.
    patience = time.monotonic() + 10
    while source.version() == before:
        assert time.monotonic() < patience
        time.sleep(0.001)


def test_a_caller_waits_for_a_change_if_the_transport_is_notified_of_changes(made, source):
    before = source.version()
    assert source.wait_for_change(before, 0.01) is False
    appending = threading.Timer(0.5, made.send, ["t", batch([b"new"], 0)])
    appending.start()
    if source.wait_for_change(before, 60):
        assert source.version() != before
    else:
        assert appending.is_alive(), "a transport without notifications returns immediately"
    appending.join()


@writable
def test_an_append_that_is_repeated_with_its_id_is_appended_once(sink, source):
    first = sink.append(batch([b"x"], 0), topic="t", repeat_id="a")
    assert sink.append(batch([b"x"], 0), topic="t", repeat_id="a") == first
    assert [each.rows for each in whole(source)] == [5, 4]


def test_an_append_without_an_id_is_never_treated_as_a_repeat(sink, source):
    for _ in range(2):
        sink.append(batch([b"x"], 0), topic="t")
    assert [each.rows for each in whole(source)] == [6, 4]


def test_each_call_of_a_sink_ends_within_the_deadline_of_its_target(made, sink, source):
    late = made.sink_in_a_hurry()
    with made.busy():
        for call in (lambda: late.append(batch([b"x"], 0), topic="t"), lambda: late.prepare("u")):
            begun = time.monotonic()
            with pytest.raises(PyrocketError):
                call()
            assert time.monotonic() - begun < 5
    late.close(clean=False)
    assert sink.append(batch([b"x"], 0), topic="t").rows == 1
    assert [each.rows for each in whole(source)] == [5, 4]
    assert "u" not in source.topics()


BATCH = SinkBatch(identity="q", target="t", batch=0)


def staged(sink):
    with sink.stage(BATCH, partition=0, attempt=0) as stager:
        stager.append(batch([b"x", b"y"], 0), topic="t")
        stager.leave_out(1)
        return [stager.finish()]


@writable
@pytest.mark.parametrize("anonymous", [True, False])
def test_a_batch_that_is_published_twice_is_visible_once(sink, source, anonymous):
    rows = pickle.loads(pickle.dumps(staged(sink)))
    assert [each.rows for each in whole(source)] == [4, 4]
    published = sink.publish(BATCH, rows, anonymous=anonymous)
    assert (published.rows, published.left_out) == (2, 1)
    again = sink.publish(BATCH, rows, anonymous=anonymous)
    assert again.dropped or again == published
    assert [each.rows for each in whole(source)] == [6, 4]


@writable
def test_rows_that_are_discarded_or_not_finished_are_never_visible(sink, source):
    sink.discard(staged(sink))
    with sink.stage(BATCH, partition=1, attempt=0) as stager:
        stager.append(batch([b"x"], 0), topic="t")
    assert [each.rows for each in whole(source)] == [4, 4]


def test_one_commit_of_a_group_covers_all_queues_and_never_moves_backwards(source):
    ends = {each.queue: each.end for each in whole(source)}
    assert source.commit("g", ends) == ends == source.committed("g", ["t"])
    assert source.commit("g", dict.fromkeys(ends, 1)) == ends
    assert source.commit("g", dict.fromkeys(ends, 1), backwards=True) == dict.fromkeys(ends, 1)


@pytest.mark.parametrize("made", OF_ONE_BROKER, indirect=True)
def test_the_target_of_a_task_is_that_of_the_driver_with_its_store(made, source):
    pinned = source.target
    assert pinned.of_store(None) == made.target
    with pytest.raises(StoreNotSharedError):
        made.other.of_store(pinned.store_id).open_source()


def test_an_empty_batch_of_a_schema_is_not_an_error(sink):
    assert sink.append(pa.record_batch({"body": pa.array([], pa.binary())}), topic="t").rows == 0


def test_an_error_keeps_whether_a_repeat_is_safe_when_pickled():
    error = TransportError("lost", repeat_is_safe=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.repeat_is_safe, copy.code, copy.message) == (True, "TRANSPORT_FAILED", "lost")


def repeated(call):
    """Return the result of a call that the transport or, after an error, the caller repeats."""
    try:
        return call()
    except TransportError as error:
        if not error.repeat_is_safe:
            raise
        return call()


unreliable = pytest.mark.parametrize("made", UNRELIABLE, indirect=True)
lossy_sinks = pytest.mark.parametrize(
    "made", [kind for kind in UNRELIABLE if kind in WRITABLE], indirect=True
)
lost = pytest.mark.parametrize("after", [False, True], ids=["request lost", "reply lost"])


@unreliable
@lost
def test_a_read_whose_call_was_lost_can_be_repeated(made, source, broker, after):
    ranges = whole(source)
    calls = {
        "bounds": lambda: source.bounds(["t"]),
        "topics": source.topics,
        "sizes": lambda: source.sizes(ranges),
        "committed": lambda: source.committed("g"),
        "mark": lambda: broker.mark({each.queue: each.end for each in ranges}),
    }
    for name, call in calls.items():
        expected = call()
        made.fail(name, after=after)
        assert repeated(call) == expected


@unreliable
@lost
def test_a_look_up_that_was_lost_can_be_repeated(made, broker, after):
    def ask():
        return broker.locate(LookupRequest(topics=["t"], keys=["k1-2"]))

    expected = ask()
    made.fail("locate", after=after)
    assert repeated(ask) == expected


@lossy_sinks
@lost
def test_a_write_whose_call_was_lost_is_done_once_if_a_repeat_is_safe(made, sink, source, after):
    rows = staged(sink)
    ends = {each.queue: each.end for each in whole(source)}
    calls = {
        "prepare": lambda: sink.prepare("u"),
        "append": lambda: sink.append(batch([b"x"], 1), topic="t", repeat_id="a"),
        "flush": sink.flush,
        "publish": lambda: sink.publish(BATCH, rows),
        "discard": lambda: sink.discard(rows),
        "commit": lambda: source.commit("g", ends),
    }
    for name, call in calls.items():
        made.fail(name, after=after)
        repeated(call)
    assert [each.rows for each in whole(source)] == [6, 5]
    assert source.committed("g") == ends


@lossy_sinks
@lost
def test_an_append_without_an_id_must_not_be_repeated(made, sink, source, after):
    made.fail("append", after=after)
    with pytest.raises(TransportError) as caught:
        sink.append(batch([b"x"], 0), topic="t")
    assert not caught.value.repeat_is_safe
    assert [each.rows for each in whole(source)] == [4 + after, 4]


@unreliable
@pytest.mark.parametrize("policy", share(["skip", "fail"], 1))
@pytest.mark.parametrize(("call", "ranges"), [("slices", 1), ("joined_slice", 2)])
def test_a_connection_lost_during_a_read_is_not_a_loss(
    made, source, broker, policy, call, ranges, caplog
):
    task = ReadPartition(broker.target, Ranges(tuple(whole(source)[:ranges])))
    asked = as_asked(loss=LossPolicy(policy=policy))
    made.fail(call, after=True)
    rows = [body for each in rows_of(task, ("body",), asked) for body in each.column(0).to_pylist()]
    assert "has lost" not in caplog.text
    assert rows == [f"{queue}-{at}".encode() for queue in range(ranges) for at in range(4)]


@pytest.mark.parametrize(
    ("lacking", "kind", "options"),
    [
        (Capability.LOOKUP, "reader", {"keys": "k"}),
        (Capability.LOOKUP, "reader", {"msgId": "i"}),
        (Capability.VIEWS, "reader", {"view": "scheduled"}),
        (Capability.GROUPS, "reader", {"group": "g", "startingOffsets": "committed"}),
        (Capability.GROUPS, "streamReader", {"commitToGroup": "g"}),
        (Capability.CREATE, "streamReader", {"createIfMissing": "true"}),
        (Capability.EXACTLY_ONCE, "writer", {}),
    ],
)
def test_an_option_that_the_transport_does_not_support_is_rejected_on_the_driver(
    box, monkeypatch, lacking, kind, options
):
    box.create()

    def begin():
        source = DefaultSource({**box.options, **options})
        if kind == "streamReader":
            return source.streamReader(SCHEMA).initialOffset()
        return source.writer(SCHEMA, False) if kind == "writer" else source.reader(SCHEMA)

    assert begin()
    monkeypatch.setattr(PathTarget, "capabilities", frozenset(Capability) - {lacking})
    option = next(iter(options), "delivery")
    with pytest.raises(OptionError, match=f"'{option}' is not supported") as caught:
        begin()
    assert caught.value.code == "OPTION_UNSUPPORTED"
    forget(box.path)
