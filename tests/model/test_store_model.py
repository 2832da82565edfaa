"""Compares the store with a model of dicts and lists: they agree after any sequence of
operations.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from pyrocket.errors import (
    MessageError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.tools.verify.verify import verify
from support.shares import TIMES
from support.stores import FakeClock, batch, bodies, log_files, message, reboot

CONFIG = StoreConfig(log_file_bytes=4096, queue_file_entries=5)
QUEUES = 2
TOPICS = st.sampled_from(["a", "b"])
BODIES = st.integers(0, 40).map(lambda n: b"." * (n * n))
ROWS = st.lists(st.tuples(BODIES, st.integers(0, QUEUES - 1)), min_size=1, max_size=9)


@dataclass
class Queue:
    """The expected content of a queue: bodies from offset `first` on, with their store times."""

    first: int = 0
    rows: list = field(default_factory=list)

    @property
    def end(self):
        return self.first + len(self.rows)


class StoreMachine(RuleBasedStateMachine):
    """Two writers and a reader of one directory."""

    @initialize()
    def make(self):
        self.patches = [mock.patch.object(io, name) for name in ("sync", "sync_directory")]
        for patch in self.patches:
            patch.start()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store"
        self.clock = FakeClock()
        self.last_time = 0
        self.topics, self.ended, self.ids = {}, {}, set()
        self.epoch = 0
        self.writers = [self.open(create=True), self.open()]
        self.reader = self.open(read_only=True)

    def open(self, **options):
        return Store.open(self.path, clock=self.clock, config=CONFIG, **options)

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        for one in [*self.writers, self.reader]:
            one.close()
        self.folder.cleanup()
        for patch in self.patches:
            patch.stop()

    def add(self, topic, rows):
        """Add rows to the model; the rows of a queue keep their order."""
        self.last_time = max(self.last_time, self.clock.now)
        for body, queue_id in rows:
            self.topics[topic][queue_id].rows.append((body, self.last_time))

    @rule(topic=TOPICS, which=st.integers(0, 1))
    def create_topic(self, topic, which):
        made = self.writers[which].topics.create(topic, read_queues=QUEUES, write_queues=QUEUES)
        if topic not in self.topics:
            assert made.topic_id not in self.ids
            self.ids.add(made.topic_id)
            first = self.ended.get(topic, [0] * QUEUES)
            self.topics[topic] = [Queue(offset) for offset in first]

    @rule(topic=TOPICS, which=st.integers(0, 1))
    def delete_topic(self, topic, which):
        if topic in self.topics:
            self.ended[topic] = [queue.end for queue in self.topics.pop(topic)]
            self.writers[which].topics.delete(topic)
            return
        with pytest.raises(TopicNotFoundError):
            self.writers[which].topics.delete(topic)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), body=BODIES, queue_id=st.integers(0, QUEUES - 1), which=st.integers(0, 1))
    def append(self, data, body, queue_id, which):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        result = self.writers[which].append(message(body, topic, queue_id))
        assert result.queue_offset == self.topics[topic][queue_id].end
        self.add(topic, [(body, queue_id)])

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), rows=ROWS, which=st.integers(0, 1))
    def append_batch(self, data, rows, which):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        contents, ids = map(list, zip(*rows, strict=True))
        self.writers[which].append_batch(batch(contents, ids), topic=topic)
        self.add(topic, rows)

    @precondition(lambda self: len(self.topics) == 2)
    @rule(rows=st.lists(st.tuples(BODIES, TOPICS), min_size=1, max_size=9), which=st.integers(0, 1))
    def append_to_both(self, rows, which):
        contents, names = map(list, zip(*rows, strict=True))
        self.writers[which].append_batch(batch(contents, 0, topic=names))
        for topic in "ab":
            self.add(topic, [(body, 0) for body, name in rows if name == topic])

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), rows=ROWS, at=st.integers(1, 6), half=st.booleans())
    def append_on_a_full_disk(self, data, rows, at, half):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        contents, ids = map(list, zip(*rows, strict=True))
        real, calls = io.write_at, []

        def write(descriptor, given, offset):
            calls.append(1)
            if len(calls) == at:
                if half:
                    real(descriptor, memoryview(given).cast("B")[: len(given) // 2], offset)
                raise OSError(28, "No space left on device")
            real(descriptor, given, offset)

        failed = None
        with mock.patch.object(io, "write_at", write):
            try:
                self.writers[0].append_batch(batch(contents, ids), topic=topic)
            except StoreUnavailableError as error:
                failed = error.code
        assert failed in (None, "WRITE_FAILED", "QUEUES_NOT_WRITTEN")
        if failed == "WRITE_FAILED":
            return
        self.add(topic, rows)
        self.writers[1].topics.create(
            topic
        )  # Any operation with the write lock makes the messages in the log visible.

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), which=st.integers(0, 1))
    def append_too_much(self, data, which):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        with pytest.raises(MessageError, match="RECORD_TOO_LARGE"):
            self.writers[which].append_batch(batch([b"ok", b"." * 4000], 0), topic=topic)

    @rule(step=st.integers(-1000, 1000))
    def move_clock(self, step):
        self.clock.now += step

    @rule(which=st.integers(0, 1), files=st.integers(0, 4))
    def clean(self, which, files):
        """Delete the oldest log files, and thus the oldest messages of all queues."""
        report = self.writers[which].clean(total_bytes=files * CONFIG.log_file_bytes)
        assert len(log_files(self.path)) <= max(files, 1)
        for topic, queues in self.topics.items():
            found = self.reader.offsets(topic)
            for queue_id, queue in enumerate(queues):
                gone = found[queue_id].minimum - queue.first
                assert gone == 0 or report.removals
                del queue.rows[:gone]
                queue.first += gone

    @rule(which=st.integers(0, 2))
    def snapshot(self, which):
        """A copy has the same content, and continues independently."""
        target = Path(self.folder.name) / "copy"
        (*self.writers, self.reader)[which].snapshot(target)
        report = verify(target)
        assert not report.findings
        with Store.open(target, clock=self.clock, config=CONFIG) as copy:
            assert copy.history.epoch == self.epoch + 1
            for topic, queues in self.topics.items():
                assert bodies(copy, topic) == {
                    q: [body for body, _ in queue.rows] for q, queue in enumerate(queues)
                }
                end = queues[0].end
                assert copy.append(message(b"copy", topic, 0)).queue_offset == end
            copy.clean(total_bytes=0)
        assert verify(target).ok
        shutil.rmtree(target)

    @rule()
    def check(self):
        """Check that log, queues and index agree in every state."""
        report = verify(self.path)
        assert report.ok, report.findings

    @rule(which=st.integers(0, 1))
    def flush(self, which):
        self.writers[which].flush()

    @rule(which=st.integers(0, 1), clean=st.booleans())
    def reopen_one(self, which, clean):
        self.writers[which].close(clean=clean)
        self.writers[which] = self.open()

    @rule()
    def reopen_all(self):
        for one in [*self.writers, self.reader]:
            one.close()
        assert not (self.path / "abort").exists()
        self.reopen()

    @rule(booted=st.booleans(), clean=st.booleans())
    def crash(self, booted, clean):
        """Kill all processes; with a reboot, only the files remain."""
        for one in self.writers:
            one.close(clean=clean)
        if booted:
            reboot(self.path)
        self.epoch += booted and (self.path / "abort").exists()
        self.reopen()

    def reopen(self):
        self.writers = [self.open(), self.open()]
        self.reader.close()
        self.reader = self.open(read_only=True)

    @invariant()
    def everybody_sees_the_same(self):
        if not hasattr(self, "reader"):
            return
        for one in (self.reader, self.writers[0]):
            assert set(one.topics.all()) == set(self.topics)
            assert one.history.epoch == self.epoch
            for topic, queues in self.topics.items():
                found = one.offsets(topic)
                assert {q: (o.minimum, o.maximum) for q, o in found.items()} == {
                    q: (queue.first, queue.end) for q, queue in enumerate(queues)
                }

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def scan_all(self, data):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        for one in (self.reader, self.writers[1]):
            assert bodies(one, topic) == {
                q: [body for body, _ in queue.rows] for q, queue in enumerate(self.topics[topic])
            }

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), queue_id=st.integers(0, QUEUES - 1))
    def read_some(self, data, queue_id):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        queue = self.topics[topic][queue_id]
        offset = data.draw(st.integers(queue.first - 1, queue.end + 1))
        most = data.draw(st.integers(0, 5))
        try:
            found = self.reader.read(topic, queue_id, offset, most)
        except OffsetOutOfRangeError:
            assert not queue.first <= offset <= queue.end
            return
        expected = queue.rows[offset - queue.first :][:most]
        assert [(one.body, one.store_timestamp) for one in found] == expected

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), queue_id=st.integers(0, QUEUES - 1), shift=st.integers(-2000, 2000))
    def look_up_time(self, data, queue_id, shift):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        queue, asked = self.topics[topic][queue_id], self.clock.now + shift
        earlier = sum(stored < asked for _, stored in queue.rows)
        assert self.reader.offset_by_time(topic, queue_id, asked) == queue.first + earlier


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=10 * TIMES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
