"""Compares sinks with a model: every batch exists once, whatever other operations run."""

from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from model.test_store_model import ROWS, StoreMachine
from pyrocket.disk import io
from pyrocket.errors import SinkError, StoreUnavailableError
from support.shares import TIMES
from support.sinks import numbered, stage

SINKS = st.sampled_from(["one", "two"])


class SinkMachine(StoreMachine):
    """Two queries that publish to any topic. Each query has several runs, and a new run replaces
    the previous one.
    """

    @initialize()
    def begin(self):
        self.last, self.empty, self.run, self.past = {}, {}, {}, {}
        self.moves, self.held, self.runs = {}, {}, 0

    def batch_of(self, sink, number, run=None):
        return numbered(number, f"run-{self.run.get(sink, 0) if run is None else run}", sink, "")

    def counted(self, sink):
        """Return the number of the newest batch, with rows or without."""
        return self.last.get(sink, -1) + self.empty.get(sink, 0)

    def is_published(self, sink, number):
        self.last[sink], self.empty[sink] = number, 0

    def moved(self, sink, run=None):
        """Record that the log has a new batch of the sink, and the current run."""
        self.moves[sink] = self.moves.get(sink, 0) + 1
        old = self.run.get(sink, 0)
        if run is not None and run != old:
            if sink in self.last:
                self.past.setdefault(sink, []).append(old)
            self.run[sink] = run

    def new_run(self):
        self.runs += 1
        return self.runs

    def staged(self, one, topic, rows):
        """Stage the rows as two tasks, in a store that is open for reading, as in Spark's tasks."""
        half = len(rows) // 2
        return [
            stage(
                self.reader,
                one,
                [body for body, _ in part],
                number,
                topic=topic,
                queue_id=[queue_id for _, queue_id in part],
            )
            for number, part in enumerate((rows[:half], rows[half:]))
        ]

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), sink=SINKS, rows=ROWS, step=st.integers(1, 3), which=st.integers(0, 1))
    def publish(self, data, sink, rows, step, which):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        for _ in range(step - 1):
            self.writers[which].sink.publish(self.batch_of(sink, self.counted(sink) + 1), [])
            self.empty[sink] = self.empty.get(sink, 0) + 1
        one = self.batch_of(sink, self.counted(sink) + 1)
        result = self.writers[which].sink.publish(one, self.staged(one, topic, rows))
        assert (result.rows, result.dropped) == (len(rows), False)
        self.is_published(sink, one.batch)
        self.moved(sink)
        self.add(topic, rows)

    @precondition(lambda self: self.topics)
    @rule(sink=SINKS)
    def begin_and_stall(self, sink):
        """A new run begins the next batch and is paused."""
        run = self.new_run()
        one = self.batch_of(sink, self.counted(sink) + 1, run)
        self.held[sink] = run, one, self.moves.get(sink, 0)

    @precondition(lambda self: self.topics and self.held)
    @rule(data=st.data(), rows=ROWS, which=st.integers(0, 1))
    def come_too_late(self, data, rows, which):
        """The paused run can publish if no other run has published since; otherwise it gets an
        error.
        """
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        sink = data.draw(st.sampled_from(sorted(self.held)))
        run, one, moves = self.held.pop(sink)
        staged = self.staged(one, topic, rows)
        if self.moves.get(sink, 0) == moves:
            assert self.writers[which].sink.publish(one, staged).rows == len(rows)
            self.moved(sink, run)
            self.is_published(sink, one.batch)
            self.add(topic, rows)
            return
        with pytest.raises(SinkError, match="SINK_FENCED"):
            self.writers[which].sink.publish(one, staged)
        self.reader.sink.discard(staged)

    @precondition(lambda self: self.topics and self.last)
    @rule(data=st.data(), rows=ROWS, which=st.integers(0, 1), new_run=st.booleans())
    def repeat(self, data, rows, which, new_run):
        """Repeat a batch number, possibly with other rows; a new run thereby replaces the current
        one.
        """
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        sink = data.draw(st.sampled_from(sorted(self.last)))
        if new_run:
            self.moved(sink, self.new_run())
        one = self.batch_of(sink, self.last[sink])
        staged = self.staged(one, topic, rows)
        assert self.writers[which].sink.publish(one, staged, on_difference="drop").dropped

    @precondition(lambda self: self.topics and self.last)
    @rule(data=st.data(), rows=ROWS, which=st.integers(0, 1), fenced=st.booleans())
    def refuse(self, data, rows, which, fenced):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        sink = data.draw(st.sampled_from(sorted(self.last)))
        if fenced and self.past.get(sink):
            run = data.draw(st.sampled_from(self.past[sink]))
            one, code = self.batch_of(sink, self.counted(sink) + 1, run), "SINK_FENCED"
        elif self.last[sink]:
            one, code = self.batch_of(sink, self.last[sink] - 1), "SINK_BATCH_BEHIND"
        else:
            return
        staged = self.staged(one, topic, rows)
        with pytest.raises(SinkError) as caught:
            self.writers[which].sink.publish(one, staged)
        assert caught.value.code == code
        self.reader.sink.discard(staged)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), sink=SINKS, rows=ROWS, at=st.integers(1, 9))
    def publish_on_a_full_disk(self, data, sink, rows, at):
        """Publishing fails at some step and is retried; then the batch is complete."""
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        one = self.batch_of(sink, self.counted(sink) + 1)
        staged = self.staged(one, topic, rows)
        real, calls = io.write_at, []

        def write(descriptor, given, offset):
            calls.append(1)
            if len(calls) == at:
                raise OSError(28, "No space left on device")
            real(descriptor, given, offset)

        failed = None
        with mock.patch.object(io, "write_at", write):
            try:
                self.writers[0].sink.publish(one, staged)
            except StoreUnavailableError as error:
                failed = error.code
        assert failed in (None, "WRITE_FAILED", "QUEUES_NOT_WRITTEN")
        result = self.writers[1].sink.publish(one, self.staged(one, topic, rows))
        assert result.dropped == (failed != "WRITE_FAILED")
        self.is_published(sink, one.batch)
        self.moved(sink)
        self.add(topic, rows)

    @invariant()
    def everybody_knows_the_last_batch(self):
        for sink, number in getattr(self, "last", {}).items():
            for one in (self.reader, self.writers[1]):
                assert one.sink.last(sink, "") == number


TestSink = SinkMachine.TestCase
TestSink.settings = settings(
    max_examples=8 * TIMES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
