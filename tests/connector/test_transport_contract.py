"""What every transport promises. A transport joins by a fixture in `TRANSPORTS`."""

import os
import pickle
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import ScanTally, SinkBatch
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import WriteLock
from pyrocket.errors import OptionError, StoreLockedError, StoreNotSharedError, TransportError
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.interface import (
    Capability,
    QueueRange,
)
from pyspark_pyrocket.transport.path import PathTarget, forget
from support.slices import decoded
from support.stores import batch

TRANSPORTS = ["path"]
SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture(params=TRANSPORTS)
def target(box):
    """A target with four messages in each of two queues of topic t."""
    box.create(queues=2)
    for queue in range(2):
        box.send(*(f"{queue}-{at}" for at in range(4)), queue=queue)
    yield PathTarget(box.path)
    forget(box.path)


@pytest.fixture
def source(target):
    return target.open_source()


def whole(source):
    return [QueueRange(q, has.minimum, has.maximum) for q, has in source.bounds(["t"]).items()]


def bodies(slices):
    return [body for part in decoded(slices) for body in part.column(0).to_pylist()]


def test_one_call_answers_for_all_queues(source):
    ranges = whole(source)
    assert [each.rows for each in ranges] == [4, 4]
    queues = [each.queue for each in ranges]
    assert source.queue_bounds(queues) == source.bounds(["t"])
    assert source.offsets_at(dict.fromkeys(queues, 0)) == dict.fromkeys(queues, 0)
    assert len(source.sizes(ranges)) == len(source.split_at_bytes([(r, [1]) for r in ranges])) == 2


def test_the_version_changes_with_the_first_new_message(source, box):
    assert source.version() == source.version()
    before = source.version()
    box.send("new", queue=0)
    assert source.version() != before


def test_slices_can_be_closed_early_and_resumed_at_an_offset(source):
    first = whole(source)[0]
    slices = source.slices([QueueRange(first.queue, 0, 2)])
    resumed = next(slices).next_offset
    slices.close()
    rest = source.slices([QueueRange(first.queue, resumed, first.end)])
    assert bodies(rest) == [b"0-2", b"0-3"]


def test_a_tally_counts_the_progress_of_slices(source):
    tally = ScanTally()
    for _ in source.slices(whole(source)[:1], tally=tally):
        pass
    assert (tally.entries, tally.messages) == (4, 4)


def test_an_append_that_is_repeated_with_its_id_is_appended_once(target, source):
    sink = target.open_sink()
    first = sink.append(batch([b"x"], 0), topic="t", repeat_id="a")
    assert sink.append(batch([b"x"], 0), topic="t", repeat_id="a") == first
    sink.close()
    assert [each.rows for each in whole(source)] == [5, 4]


def test_each_call_of_a_sink_ends_within_its_deadline(box, target):
    sink = target.open_sink()
    layout = Layout(Path(box.path))
    other = WriteLock(layout.mutex, layout.turnstile, os.getpid)
    with other.hold(1000):
        for call in (
            lambda late: late.append(batch([b"x"], 0), topic="t"),
            lambda late: late.prepare("u"),
        ):
            begun = time.monotonic()
            with pytest.raises(StoreLockedError) as caught:
                call(sink.within(0.05))
            assert caught.value.code == "LOCK_TIMEOUT"
            assert time.monotonic() - begun < 5
    other.close()
    assert sink.append(batch([b"x"], 0), topic="t").rows == 1
    sink.close()


def test_an_append_is_recognized_whatever_deadline_its_repeat_has(target, source):
    sink = target.open_sink()
    first = sink.within(5).append(batch([b"x"], 0), topic="t", repeat_id="a")
    assert sink.within(9).append(batch([b"x"], 0), topic="t", repeat_id="a") == first
    sink.close()
    assert [each.rows for each in whole(source)] == [5, 4]


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_batch_that_is_published_twice_is_visible_once(target, source, anonymous):
    sink = target.open_sink()
    name = SinkBatch(identity="q", target="t", batch=0)
    with sink.stage(name, partition=0, attempt=0) as stager:
        stager.append(batch([b"x", b"y"], 0), topic="t")
        staged = [stager.finish()]
    assert sink.publish(name, staged, anonymous=anonymous).rows == 2
    again = sink.within(9).publish(name, staged, anonymous=anonymous)
    assert again.rows == 2 or again.dropped
    sink.close()
    assert [each.rows for each in whole(source)] == [6, 4]


def test_a_group_is_committed_in_all_queues_at_once_and_never_back(source):
    ends = {each.queue: each.end for each in whole(source)}
    assert source.commit("g", ends) == ends == source.committed("g", ["t"])
    assert source.commit("g", dict.fromkeys(ends, 1)) == ends
    assert source.commit("g", dict.fromkeys(ends, 1), backwards=True) == dict.fromkeys(ends, 1)


def test_a_target_is_small_and_names_the_store_of_the_driver(source):
    pinned = source.target
    assert pickle.loads(pickle.dumps(pinned)) == pinned
    assert len(pickle.dumps(pinned)) < 400
    with pytest.raises(StoreNotSharedError):
        PathTarget(pinned.path, "another").open_source()


def test_an_error_knows_whether_a_repeat_is_safe_also_after_pickling():
    error = TransportError("lost", repeat_is_safe=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.repeat_is_safe, copy.code, copy.message) == (True, "TRANSPORT_FAILED", "lost")


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
def test_an_option_that_the_transport_cannot_serve_is_refused_on_the_driver(
    box, monkeypatch, lacking, kind, options
):
    box.create()
    source = DefaultSource({**box.options, **options})
    begin = partial(getattr(source, kind), SCHEMA)
    begin = partial(begin, False) if kind == "writer" else begin
    assert begin()
    monkeypatch.setattr(PathTarget, "capabilities", frozenset(Capability) - {lacking})
    option = next(iter(options), "delivery")
    with pytest.raises(OptionError, match=f"'{option}' is not supported") as caught:
        begin()
    assert caught.value.code == "OPTION_UNSUPPORTED"
    forget(box.path)


def test_an_empty_batch_of_a_schema_is_not_an_error(target):
    sink = target.open_sink()
    assert sink.append(pa.record_batch({"body": pa.array([], pa.binary())}), topic="t").rows == 0
    sink.close()
