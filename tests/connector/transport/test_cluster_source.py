"""Plans of reads from two brokers, each in the memory of this process."""

import json
import threading
import time

import pytest
from pyrocket import LogMark, QueueRange
from pyrocket.errors import (
    DataLossError,
    InvalidInputError,
    LogTruncatedError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransportError,
)
from pyspark_pyrocket.options.batching import Splitting
from pyspark_pyrocket.options.policies import FAIL, SKIP, LossPolicy
from pyspark_pyrocket.source.admission import take_bytes
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import partitions, topics_to_read
from pyspark_pyrocket.source.resume import what_remains
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset, planned_ranges
from pyspark_pyrocket.tools.lag.measure import lag_of
from pyspark_pyrocket.transport.cluster_source import ClusterSource
from support.offsets import as_asked, at, through_spark
from support.queue_numbers import Named, Numbers

A, B = "broker-a", "broker-b"


@pytest.fixture
def brokers():
    """Two brokers with topic t: two queues at broker-a, one at broker-b."""
    found = {A: Numbers(t={0: (0, 3), 1: (0, 2)}), B: Numbers(t={0: (0, 5)})}
    found[B].broker, found[B].uuid, found[B].ids["t"] = B, "uuid-2", "id-2"
    return found


def cluster(brokers, *live):
    """Return a source of all brokers, or of those that live."""

    def find(name):
        if name in live or name not in brokers:
            raise TransportError(f"There is no broker {name}.", repeat_is_safe=True)
        return brokers[name]

    sources = {name: brokers[name] for name in live or brokers}
    return ClusterSource(Named("cluster"), sources, find)


def gone(brokers, *live):
    """Return a source of the live brokers that does not find the others."""
    return cluster({name: brokers[name] for name in live})


def options(policy=FAIL, removed=()):
    return as_asked(loss=LossPolicy(policy=policy, removed_brokers=removed))


def started(source):
    """Return the offset after everything has been read."""
    initial = initial_offset(source, options())
    return through_spark(next_offset(source, options(), initial))


def read(start, end):
    ranges = sorted(planned_ranges(start, through_spark(end)))
    return [(r.queue.broker, r.queue.queue_id, r.start, r.end) for r in ranges if r.rows]


def test_a_query_reads_the_queues_of_all_brokers(brokers):
    source = cluster(brokers)
    initial = initial_offset(source, options())
    assert initial.offsets == {at("t", 0, A): 0, at("t", 1, A): 0, at("t", 0, B): 0}
    start = through_spark(next_offset(source, options(), initial))
    assert read(initial, start) == [(A, 0, 0, 3), (A, 1, 0, 2), (B, 0, 0, 5)]
    brokers[B].grow("t", 0, 7)
    end = next_offset(source, options(), start)
    assert read(start, end) == [(B, 0, 5, 7)]
    text = json.dumps(end.to_json())
    assert '"t": {"broker-a": {"0": 3, "1": 2}, "broker-b": {"0": 7}}' in text
    assert {name: known.store for name, known in end.brokers.items()} == {A: "uuid-1", B: "uuid-2"}
    assert end.topic_ids == {"t": {A: "id-t", B: "id-2"}}


def test_a_broker_that_joins_is_read_from_its_first_message(brokers):
    start = started(cluster({A: brokers[A]}))
    end = next_offset(cluster(brokers), options(), start)
    assert read(start, end) == [(B, 0, 0, 5)]


@pytest.mark.parametrize("policy", [FAIL, SKIP])
def test_a_broker_that_is_down_is_an_error_and_never_a_loss(brokers, policy):
    start = started(cluster(brokers))
    left = gone(brokers, A)
    with pytest.raises(TransportError, match=B):
        next_offset(left, options(policy), start)
    with pytest.raises(TransportError, match=B):
        list(what_remains(left, start, [], Losses(LossPolicy(policy=policy))))
    brokers[A].grow("t", 0, 9)
    assert read(start, next_offset(cluster(brokers), options(policy), start)) == [(A, 0, 3, 9)]


def test_a_broker_that_is_found_later_belongs_to_the_source_from_then_on(brokers):
    start = started(cluster(brokers))
    source = cluster(brokers, A)
    source._find = brokers.__getitem__
    assert next_offset(source, options(), start) is None
    assert [*source.identities()] == [A, B]


def test_a_broker_that_was_removed_for_good_is_left_out(brokers):
    start = started(cluster(brokers)).without([B])
    brokers[A].grow("t", 0, 4)
    end = next_offset(gone(brokers, A), options(removed=(B,)), start)
    assert read(start, end) == [(A, 0, 3, 4)]
    assert [*end.brokers] == [A]
    # It does not matter whether the broker still runs.
    assert next_offset(cluster(brokers), options(removed=(B,)), end) is None


def test_available_now_reads_a_broker_that_was_not_found_when_it_began(brokers):
    start = started(cluster(brokers))
    target = Offsets.ends(brokers[A].bounds(["t"]))
    for one in brokers.values():
        one.grow("t", 0, 9)
    end = next_offset(cluster(brokers), options(), start, target=target)
    assert read(start, end) == [(B, 0, 5, 9)]
    brokers[B].grow("t", 0, 10)
    assert next_offset(cluster(brokers), options(), through_spark(end), target=target) is None


def test_the_store_of_one_broker_that_was_replaced_is_detected(brokers):
    start = started(cluster(brokers))
    brokers[B].uuid = "uuid-9"
    with pytest.raises(DataLossError, match=r"store uuid-2, but .* is store uuid-9") as info:
        next_offset(cluster(brokers), options(SKIP), start)
    assert info.value.code == "STORE_CHANGED"


def test_a_checkpoint_of_several_brokers_is_not_read_from_one_of_them(brokers):
    with pytest.raises(DataLossError, match=r"store uuid-2, but .* is store uuid-1"):
        next_offset(brokers[A], options(), started(cluster(brokers)))


def test_a_truncated_log_concerns_only_the_queues_of_its_broker(brokers):
    source, start = cluster(brokers), started(cluster(brokers))
    brokers[B].epoch, brokers[B].cuts = 1, {("t", 0): 4}
    with pytest.raises(LogTruncatedError, match="up to offset 5"):
        next_offset(source, options(), start)
    end = next_offset(source, options(SKIP), start)
    assert read(start, end) == [(B, 0, 4, 5)]
    assert [known.epoch for known in end.brokers.values()] == [0, 1]


def test_the_mark_of_each_broker_is_kept_and_compared(brokers):
    marks = {A: LogMark(100, 1_000, 1), B: LogMark(50, 2_000, 2)}
    for name, one in brokers.items():
        one.mark = lambda offsets, name=name: marks[name] if offsets else None
        one.holds = lambda mark, name=name: mark == marks[name]
    source, start = cluster(brokers), started(cluster(brokers))
    assert {name: known.mark for name, known in start.brokers.items()} == marks
    assert next_offset(source, options(), start) is None
    brokers[B].holds = lambda mark: False
    brokers[B].times = {("t", 0): [1_000, 1_000, 3_000, 3_000, 3_000]}
    with pytest.raises(LogTruncatedError, match="older copy"):
        next_offset(source, options(), start)
    end = next_offset(source, options(SKIP), start)
    assert read(start, end) == [(B, 0, 2, 5)]


def test_a_topic_that_one_broker_creates_again_is_detected_there_alone(brokers):
    source, start = cluster(brokers), started(cluster(brokers))
    brokers[B].ids["t"] = "another"
    brokers[A].grow("t", 0, 4)
    with pytest.raises(TopicRecreatedError):
        next_offset(source, options(), start)
    end = next_offset(source, options(SKIP), start)
    assert read(start, end) == [(A, 0, 3, 4)]
    assert end.topic_ids == {"t": {A: "id-t", B: "another"}}


def test_a_topic_that_one_broker_no_longer_has_is_a_topic_with_fewer_queues(brokers):
    source, start = cluster(brokers), started(cluster(brokers))
    brokers[B].delete("t")
    assert next_offset(source, options(), start) is None
    brokers[A].grow("t", 1, 3)
    assert read(start, next_offset(source, options(), start)) == [(A, 1, 2, 3)]
    brokers[A].delete("t")
    with pytest.raises(DataLossError, match="was deleted"):
        next_offset(source, options(), start)


def test_topics_are_those_of_all_brokers(brokers):
    source = cluster(brokers)
    brokers[B].grow("u", 0, 1)
    topics = source.topics()
    assert {*topics} == {"t", "u"}
    assert (topics["t"].read_queues, topics["t"].topic_id) == (8, "")
    assert (topics["u"].read_queues, topics["u"].topic_id) == (4, "id-u")
    assert source.topic("u") == topics["u"]
    assert [*source.bounds(["u", "t"])] == [at("u", 0, B), *source.bounds(["t"])]
    with pytest.raises(TopicNotFoundError):
        source.topic("v")


def test_a_topic_is_not_read_if_one_broker_does_not_permit_it(brokers):
    brokers[B].perm = 2
    with pytest.raises(InvalidInputError) as info:
        topics_to_read(cluster(brokers), options())
    assert info.value.code == "TOPIC_NOT_READABLE"


def test_each_task_reads_from_one_broker(brokers):
    for name, one in brokers.items():
        type(one).target = property(lambda self: Named(self.broker))
        one.grow("t", 0, 9)
        assert one.target.name == name
    asked = as_asked(splitting=Splitting())
    ranges = [QueueRange(at("t", 0, A), 0, 9), QueueRange(at("t", 0, B), 1, 9)]
    source = cluster(brokers)
    tasks = partitions(source, asked, reversed(ranges), source.identities())
    assert [(task.target.name, *task.work.ranges) for task in tasks] == [
        *zip((A, B), ranges, strict=True)
    ]


def test_a_byte_limit_counts_the_bytes_of_each_log(brokers):
    """The messages of both brokers are at the same places, each in a log of its own."""
    start, end = (Offsets({at("t", 0, name): n for name in (A, B)}) for n in (0, 3))
    for one in brokers.values():
        one.split_at_bytes = lambda splits: [
            [(min(r.end, r.start + mark // 100), 100 * min(r.rows, mark // 100)) for mark in marks]
            for r, marks in splits
        ]
    assert take_bytes(start, end, 600, cluster(brokers)) == end
    assert take_bytes(start, end, 400, cluster(brokers)).total() == 4


def test_the_lag_is_that_of_each_broker(brokers):
    source = cluster(brokers)
    end = started(source)
    brokers[B].grow("t", 0, 9)
    latest = next_offset(source, options(), end)
    progress = {"endOffset": end.to_json(), "latestOffset": latest.to_json()}
    assert [(one.broker, one.messages) for one in lag_of(progress)] == [(A, 0), (B, 4)]


def test_a_group_commits_at_the_brokers_of_its_queues(brokers):
    for one in brokers.values():
        one.commit = lambda group, given, backwards=False, one=one: (
            one.commits.setdefault((group, "t"), {}).update(
                {queue.queue_id: n for queue, n in given.items()}
            )
            or {**given}
        )
    source = cluster(brokers)
    offsets = {at("t", 1, A): 2, at("t", 0, B): 5}
    assert source.commit("g", offsets) == offsets == source.committed("g", ["t"])
    assert brokers[B].commits == {("g", "t"): {0: 5}}


def test_a_change_at_any_broker_ends_the_wait(brokers):
    changes = {name: threading.Event() for name in brokers}
    for name, one in brokers.items():
        one.version = changes[name].is_set
        one.wait_for_change = lambda seen, seconds, name=name: changes[name].wait(seconds)
    source = cluster(brokers)
    version = source.version()
    assert not source.wait_for_change(version, 0.01)
    for name, event in changes.items():
        threading.Timer(0.02, event.set).start()
        began = time.monotonic()
        while not source.wait_for_change(version, 0.05):
            assert time.monotonic() - began < 10, name
        event.clear()
    assert source.wait_for_change((), 0.01), "the brokers are others"


def test_versions_and_identities_have_all_brokers(brokers):
    source = cluster(brokers)
    assert [*source.identities()] == [A, B] == [name for name, _ in source.version()]
    assert cluster({A: brokers[A]}).version() != source.version()
    brokers[B].clock = 2_000_000
    assert source.now_ms() == 2_000_000
    assert not source.is_recovering()
    brokers[B].interrupted = True
    assert source.is_recovering()


def test_version_1_of_an_offset_names_its_broker_in_a_cluster(brokers):
    value = {"epoch": 0, "offsets": {"t": {A: {"0": 3, "1": 1}}}, "store": "uuid-1"}
    start = StreamOffset.from_json({**value, "topics": {"t": "id-t"}, "version": 1})
    end = next_offset(cluster(brokers), options(), start)
    assert read(start, end) == [(A, 1, 1, 2), (B, 0, 0, 5)]
