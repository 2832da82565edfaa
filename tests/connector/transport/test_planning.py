"""The view of a source for one planning call: each plan costs one call, and sees one moment."""

import json
import threading
from collections import Counter
from dataclasses import replace

import pytest
from bench.house import calls_seen
from pyrocket import LogMark, QueueOffsets, Store
from pyrocket.errors import DataLossError, TransportError, UnsupportedError
from pyrocket.server.service import BulkService
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset
from pyspark_pyrocket.transport.cluster_source import ClusterSource, side_by_side
from pyspark_pyrocket.transport.planning import Planning
from support.broker import served
from support.offsets import as_asked, at, through_spark
from support.queue_numbers import Named, Numbers
from support.stores import batch

A, B = "broker-a", "broker-b"
EVERYTHING = ReadAllAvailable()
SCHEMA = default_columns(kafka=False, headers=False, text=False)


class Counted(Numbers):
    """Queues of broker-a that count their calls."""

    def __init__(self, **topics):
        super().__init__(**topics)
        self.calls, self.run = Counter(), "first"

    def __getattribute__(self, name):
        if name in ("plan", "topics", "bounds", "queue_bounds", "holds", "truncations"):
            self.calls[name] += 1
        return super().__getattribute__(name)

    def plan(self, topics):
        found = super().plan(topics)
        self.calls.clear()
        self.calls["plan"] += 1
        return replace(found, run=self.run)


@pytest.fixture
def store():
    return Counted(t={0: (0, 3), 1: (0, 2)}, u={0: (0, 1)})


def test_all_that_is_planned_is_one_call(store):
    view = Planning().view(store, ["t", "missing"])
    for _ in range(2):
        assert view.identities() == Numbers.identities(store)
        assert view.topics().keys() == {"t", "u"}
        assert view.bounds(["t"]) == {
            at("t", 0): QueueOffsets(0, 3),
            at("t", 1): QueueOffsets(0, 2),
        }
        assert view.queue_bounds([at("t", 1)]) == {at("t", 1): QueueOffsets(0, 2)}
        assert view.queue_bounds([]) == {}
        assert view.truncations({A: store.epoch}, [at("t", 0)]) == {}
    assert store.calls == {"plan": 1}


def test_other_topics_and_queues_are_asked_once_more(store):
    view = Planning().view(store, ["t"])
    assert [*view.bounds(["u", "t"])] == [at("u", 0), at("t", 0), at("t", 1)]
    assert [*view.bounds(["t", "u"])] == [at("t", 0), at("t", 1), at("u", 0)]
    assert store.calls == {"plan": 1, "bounds": 1}


def test_a_view_sees_one_moment_and_the_next_one_sees_the_change(store):
    planning = Planning()
    view = planning.view(store, ["t"])
    assert view.bounds(["t"])[at("t", 0)].maximum == 3
    store.known["t"][0] = QueueOffsets(0, 7)
    assert view.bounds(["t"])[at("t", 0)].maximum == 3
    assert planning.view(store, ["t"]).bounds(["t"])[at("t", 0)].maximum == 7


@pytest.mark.parametrize("change", ["run", "epoch", "uuid"])
def test_the_mark_is_compared_once_for_each_run_and_epoch_of_a_broker(store, change):
    planning, mark, asked = Planning(), LogMark(1, 2, 3), []
    store.holds = lambda mark: asked.append(mark) or True

    def holds():
        return planning.view(store, []).holds(mark)

    assert holds()
    assert holds()
    assert len(asked) == 1
    setattr(store, change, getattr(store, change) + type(getattr(store, change))(1))
    assert holds()
    assert holds()
    assert len(asked) == 2


@pytest.mark.parametrize("answer", [False, None])
def test_a_mark_that_the_log_lacks_is_compared_each_time(store, answer):
    planning, asked = Planning(), []
    store.holds = lambda mark: asked.append(mark) or answer
    for _ in range(2):
        assert planning.view(store, []).holds(LogMark(1, 2, 3)) is answer
    assert len(asked) == 2


def test_a_store_that_may_be_replaced_at_any_time_is_compared_each_time(store):
    planning, asked, store.run = Planning(), [], ""
    store.holds = lambda mark: asked.append(mark) or True
    for _ in range(2):
        assert planning.view(store, []).holds(LogMark(1, 2, 3))
    assert len(asked) == 2


def test_several_brokers_are_asked_at_the_same_time(store):
    other, both = Counted(t={0: (0, 5)}), threading.Barrier(2, timeout=20)
    other.broker = B

    def plan_of(source):
        def plan(topics):
            both.wait()
            return Numbers.plan(source, topics)

        return plan

    store.plan, other.plan = plan_of(store), plan_of(other)
    source = ClusterSource(Named("cluster"), {A: store, B: other}, {}.__getitem__)
    view = Planning().view(source, ["t"])
    assert view.identities().keys() == {A, B}
    assert view.bounds(["t"]).keys() == {at("t", 0), at("t", 1), at("t", 0, B)}
    assert view.by_broker()[B].bounds(["t"]) == {at("t", 0, B): QueueOffsets(0, 5)}


def test_a_broker_that_is_found_later_belongs_to_the_view(store):
    other = Counted(t={0: (0, 5)})
    other.broker = B
    source = ClusterSource(Named("cluster"), {A: store}, {B: other}.__getitem__)
    view = Planning().view(source, ["t"])
    assert view.by_broker([B]).keys() == {A, B}
    assert at("t", 0, B) in view.bounds(["t"])


def test_the_error_of_a_broker_is_raised():
    def ask(name, _):
        if name == B:
            raise TransportError("broker-b is down.", repeat_is_safe=True)
        return name

    with pytest.raises(TransportError, match="broker-b"):
        side_by_side(ask, {A: 1, B: 2})


def test_a_broker_lost_between_two_calls_of_a_plan_is_an_error_and_no_loss(store):
    options = as_asked()
    start = through_spark(next_offset(store, options, initial_offset(store, options)))
    store.known["t"][0] = QueueOffsets(0, 7)

    def lost(*_):
        raise TransportError("The broker did not answer.", repeat_is_safe=True)

    store.mark = lost
    with pytest.raises(TransportError):
        next_offset(Planning().view(store, ["t"]), options, start)


@pytest.fixture
def broker(tmp_path):
    """A reader of topic t over a broker, and the broker's store."""
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t", read_queues=1, write_queues=1)
    with served(store) as address:
        reader = DefaultSource({"endpoint": address, "topic": "t"}).streamReader(SCHEMA)
        reader.given = {"endpoint": address, "topic": "t"}
        yield reader, store
        reader.stop()


def test_a_micro_batch_over_a_broker_costs_few_calls(broker):
    reader, store = broker
    start = end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    for _ in range(3):
        store.append_batch(batch([b"x"] * 50), topic="t")
        while end == start:  # The broker streams its version at most every 10 ms.
            with calls_seen() as planned:
                end = json.loads(json.dumps(reader.latestOffset(start, EVERYTHING)))
        with calls_seen() as divided:
            assert reader.partitions(start, end)
            reader.commit(end)
        with calls_seen() as look:
            assert reader.latestOffset(end, EVERYTHING) == end
        start = end
    assert planned == ["Plan", "Mark"]
    assert divided == ["Sizes", "SplitAtBytes"]
    assert look == ["Plan"]


def test_a_replayed_micro_batch_is_checked_for_losses(broker):
    reader, store = broker
    start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    store.append_batch(batch([b"x"] * 50), topic="t")
    end = json.loads(json.dumps(reader.latestOffset(start, EVERYTHING)))
    store.topics.delete("t")
    store.topics.create("t", read_queues=1, write_queues=1)
    again = DefaultSource(reader.given).streamReader(SCHEMA)
    with pytest.raises(DataLossError, match="deleted and created again"):
        again.partitions(start, end)
    again.stop()


def test_a_broker_of_an_older_release_is_named(tmp_path, monkeypatch):
    calls = BulkService.calls
    monkeypatch.setattr(
        BulkService, "calls", lambda self: [one for one in calls(self) if one.name != "Plan"]
    )
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    with served(store) as address:
        reader = DefaultSource({"endpoint": address, "topic": "t"}).streamReader(SCHEMA)
        with pytest.raises(UnsupportedError, match="does not implement Plan") as caught:
            reader.initialOffset()
        reader.stop()
    assert caught.value.code == "PROTOCOL_OLDER"
