"""The boundaries between micro-batches: no message is lost or repeated."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.options.positions import EARLIEST, LATEST, OffsetChoice
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.admission import take_rows
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset, planned_ranges
from support.offsets import at
from support.shares import TIMES

TOPICS = ("t0", "t1", "t2")
QUEUES = st.tuples(st.sampled_from(TOPICS), st.integers(0, 3))

STEPS = st.one_of(
    st.tuples(st.just("append"), QUEUES, st.integers(1, 50)),
    st.tuples(st.just("clean"), QUEUES, st.integers(1, 60)),
    st.tuples(st.just("batch"), st.one_of(st.none(), st.integers(1, 30))),
    st.tuples(st.just("die")),
)
EXAMPLES = settings(
    max_examples=30 * TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Query:
    """Acts as Spark: saves offsets as text, and replays the last one after a crash."""

    def __init__(self, store, options):
        self.store, self.options = store, options
        self.log, self.read, self.last_start = [], {}, None

    def start(self):
        """Return the end of the last batch, or a new initial offset."""
        if self.log:
            return StreamOffset.from_json(json.loads(self.log[-1]))
        return initial_offset(self.store, self.options)

    def plan(self, max_rows):
        take = None if max_rows is None else lambda begin, end: take_rows(begin, end, max_rows)
        start = self.start()
        end = next_offset(self.store, self.options, start, take=take)
        if end is None:
            return []
        self.log.append(json.dumps(end.to_json()))
        self.last_start = start
        return self.ranges(start)

    def ranges(self, start):
        """Return the ranges of the last batch, computed only from the saved texts."""
        end = StreamOffset.from_json(json.loads(self.log[-1]))
        return sorted(each for each in planned_ranges(start, end) if each.rows)

    def replay(self):
        """Plan the last batch again, as a new process."""
        if len(self.log) > 1:
            return self.ranges(StreamOffset.from_json(json.loads(self.log[-2])))
        return self.ranges(initial_offset(self.store, self.options))

    def consume(self, ranges):
        for each in ranges:
            self.read.setdefault((each.queue.topic, each.queue.queue_id), []).append(
                (each.start, each.end)
            )


def run(query, steps):
    """Run the steps, then read the rest; a batch is read as it was planned last."""
    store, planned = query.store, []
    for kind, *what in [*steps, ("batch", None)]:
        if kind == "append":
            (topic, queue), count = what
            known = store.limits(at(topic, queue))
            store.grow(topic, queue, known.maximum + count, known.minimum)
        elif kind == "clean":
            (topic, queue), count = what
            known = store.limits(at(topic, queue))
            if known.maximum:
                minimum = min(known.minimum + count, known.maximum)
                store.grow(topic, queue, known.maximum, minimum)
        elif kind == "batch":
            query.consume(planned)
            planned = query.plan(*what)
        elif query.log:
            assert query.replay() == query.ranges(query.last_start)
    query.consume(planned)


@EXAMPLES
@given(st.lists(STEPS.filter(lambda step: step[0] != "clean"), max_size=30))
def test_no_message_is_lost_or_repeated_between_micro_batches(numbers, steps):
    query = fresh_query(numbers, EARLIEST, "fail")
    run(query, steps)
    for key, limits in every_queue(query.store):
        assert joined(query.read.get(key, [])) == ([(0, limits.maximum)] if limits.maximum else [])


@EXAMPLES
@given(st.lists(STEPS, max_size=30))
@pytest.mark.parametrize("word", [EARLIEST, LATEST])
def test_replay_identical_ranges_after_failure(numbers, word, steps):
    """This includes the first batch, whose initial offset is requested again later."""
    run(fresh_query(numbers, word, "skip"), steps)


@EXAMPLES
@given(st.lists(STEPS, max_size=30))
def test_after_cleaning_only_expired_messages_are_skipped_and_they_are_counted(numbers, steps):
    query = fresh_query(numbers, EARLIEST, "skip")
    run(query, steps)
    lost = query.start().lost
    for key, limits in every_queue(query.store):
        topic, queue = key
        ranges = query.read.get(key, [])
        assert ranges == sorted(ranges)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        taken = sum(end - start for start, end in ranges)
        # Messages deleted before the query knew the queue are not lost.
        before = first_seen(query, key)
        assert taken + lost.get(at(topic, queue), 0) == limits.maximum - before


def fresh_query(numbers, word, policy):
    options = ReadOptions(
        path="/s",
        subscription=SubscribedTopics(pattern="t."),
        span=Span(OffsetChoice("startingOffsets", word)),
        loss=LossPolicy(policy=policy),
    )
    return Query(numbers(t0={0: (0, 0)}), options)


def every_queue(store):
    for topic, queues in store.known.items():
        for queue, limits in queues.items():
            yield (topic, queue), limits


def first_seen(query, key):
    """Return the first offset of a queue when the query first read it."""
    topic, queue = key
    for text in query.log:
        offset = StreamOffset.from_json(json.loads(text))
        first = offset.first.get(at(topic, queue))
        if first is not None:
            return first
    return query.store.known[topic][queue].minimum


def joined(ranges):
    """Join consecutive ranges."""
    whole = []
    for start, end in ranges:
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return whole
