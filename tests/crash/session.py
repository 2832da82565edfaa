"""A recorded scenario: operations on a store, and the store's promises after each."""

import copy
import itertools
from dataclasses import replace

from crash.promises import Promises
from pyrocket import Store
from support.sinks import numbered, stage
from support.stores import SMALL, FakeClock, batch, message

CONFIG = SMALL


class Session:
    """Runs a scenario's operations on a recorded store, and records the promises."""

    def __init__(self, recorder, path, rng, promises):
        self.recorder, self.path, self.rng = recorder, path, rng
        self.clock, self.events, self._stores = FakeClock(), [], {}
        self.now = copy.deepcopy(promises)
        self._numbers = itertools.count(1_000_000 * rng.randrange(1000))

    def record(self, change, *arguments, at=None):
        """Record that a promise changes now, or after the first `at` operations."""
        moment = len(self.recorder.ops) if at is None else at
        self.events.append((moment, change, arguments))
        change(self.now, *arguments)

    def open(self, *, flush="async", **options):
        config = replace(CONFIG, flush=flush, **options)
        store = Store.open(self.path, create=True, clock=self.clock, config=config)
        self._stores[store] = flush
        if store.history.epoch > self.now.epoch or not self.now.created:
            self.record(Promises.is_recovered, store.history.epoch, maxima_of(store))
        return store

    def create(self, store, topic="t", queues=2):
        self.record(Promises.topic_is_offered, topic, queues)
        store.topics.create(topic, read_queues=queues, write_queues=queues)
        self.record(Promises.topic_is_made, topic, queues, minima_of(store))

    def update(self, store, topic, queues):
        self.record(Promises.topic_is_offered, topic, queues)
        store.topics.update(topic, read_queues=queues, write_queues=queues)
        self.record(Promises.topic_is_made, topic, queues, minima_of(store))

    def delete(self, store, topic="t"):
        self.record(Promises.topic_may_go, topic)
        store.topics.delete(topic)
        self.record(Promises.topic_is_gone, topic)

    def look_at_topics(self, store):
        """Record which topics exist after a crash."""
        there, minima = store.topics.all(), minima_of(store)
        for topic in set(self.now.topics) - self.now.doubtful:
            if topic in there:
                self.record(Promises.topic_is_made, topic, there[topic].read_queues, minima)
            else:
                self.record(Promises.topic_is_missing, topic)

    def append(self, store, topic="t", queue_id=0, size=None, **more):
        self.clock.now += 1500
        begin, body = len(self.recorder.ops), self._body(size)
        sent = store.append(message(body, topic, queue_id, **more))
        queue = topic, queue_id
        self.record(Promises.is_offered, queue, sent.queue_offset, [body], at=begin)
        self._appended(store, {queue: sent.queue_offset + 1})

    def append_batch(self, store, topic="t", queue_ids=(0, 0, 1, 0), size=None, whole=False):
        self.clock.now += 1500
        begin, rows = len(self.recorder.ops), [self._body(size) for _ in queue_ids]
        before = {(topic, q): store.max_offset(topic, q) for q in sorted(set(queue_ids))}
        store.append_batch(batch(rows, list(queue_ids)), topic=topic, whole=whole)
        ends = {queue: store.max_offset(*queue) for queue in before}
        for queue, offset in before.items():
            mine = [body for body, q in zip(rows, queue_ids, strict=True) if q == queue[1]]
            self.record(Promises.is_offered, queue, offset, mine, at=begin)
        if whole:
            bounds = {queue: (before[queue], ends[queue]) for queue in before}
            self.record(Promises.is_offered_whole, bounds, at=begin)
        self._appended(store, ends)
        if whole:
            self.record(Promises.is_durable)

    def publish(self, store, number, queue_ids=(0, 0, 1, 0), size=None, run="run-1"):
        """Stage in two tasks and publish; batches that were published before are ignored."""
        self.clock.now += 1500
        begin, rows = len(self.recorder.ops), [self._body(size) for _ in queue_ids]
        before = {("t", q): store.max_offset("t", q) for q in sorted(set(queue_ids))}
        one = numbered(number, run)
        half = len(rows) // 2
        parts = (slice(0, half), slice(half, None))
        staged = [stage(store, one, rows[part], queue_id=list(queue_ids[part])) for part in parts]
        bounds, mine = {}, {}
        for queue, offset in before.items():
            mine[queue] = [row for row, q in zip(rows, queue_ids, strict=True) if q == queue[1]]
            bounds[queue] = offset, offset + len(mine[queue])
        published = store.sink.publish(one, staged, on_difference="drop")
        if not published.dropped:
            for queue, bodies in mine.items():
                self.record(Promises.is_offered, queue, before[queue], bodies, at=begin)
            self.record(Promises.is_offered_whole, bounds, at=begin)
            self.record(Promises.is_offered_once, number, bounds, at=begin)
            self._appended(store, {queue: end for queue, (_, end) in bounds.items()})
        self.record(Promises.is_published, number)
        self.record(Promises.is_durable)

    def flush(self, store):
        store.flush()
        self.record(Promises.is_durable)

    def clean(self, store, **limits):
        self.record(Promises.may_clean)
        store.clean(**limits)
        self.record(Promises.is_cleaned, minima_of(store))

    def commit(self, store, group, offsets, topic="t"):
        known = store.groups.committed(group, topic)
        ends = {q: store.max_offset(topic, q) for q in offsets}
        taken = {
            q: new if new > known.get(q, -1) or known[q] > ends[q] else known[q]
            for q, new in offsets.items()
        }
        self.record(Promises.offsets_are_offered, (topic, group), {**known, **taken})
        store.groups.commit(group, topic, offsets)
        self.record(Promises.offsets_are_kept, (topic, group))

    def reset(self, store, group, offsets, topic="t"):
        known = store.groups.committed(group, topic)
        self.record(Promises.offsets_are_offered, (topic, group), {**known, **offsets})
        store.groups.reset(group, topic, offsets)
        self.record(Promises.offsets_are_kept, (topic, group))

    def delete_group(self, store, group):
        keys = [key for key in self.now.groups if key[1] == group]
        for key in keys:
            self.record(Promises.offsets_are_offered, key, {})
        store.groups.delete(group)
        for key in keys:
            self.record(Promises.offsets_are_kept, key)
        self.record(Promises.group_is_forgotten, group)

    def look_at_groups(self, store):
        """Record which group offsets exist after a crash."""
        for topic, group in self.now.groups:
            there = store.groups.committed(group, topic)
            self.record(Promises.offsets_are_offered, (topic, group), there)
            self.record(Promises.offsets_are_kept, (topic, group))
        # An incomplete commit or deletion may have left a group without offsets.
        for group in {group for _, group in self.now.groups} - {*store.groups.all()}:
            self.record(Promises.group_is_forgotten, group)

    def snapshot(self, store):
        self.record(Promises.snapshot_is_begun)
        store.snapshot(self.path.parent / "snapshot")
        self.record(Promises.snapshot_is_made)

    def close(self, store, *, clean=True):
        store.close(clean=clean)
        del self._stores[store]
        if clean and not self._stores:
            self.record(Promises.is_durable)

    def end(self):
        for store in self._stores:
            store.close(clean=False)

    def _body(self, size):
        size = self.rng.choice((0, 10, 100, 400, 1100)) if size is None else size
        return f"{next(self._numbers)}:".encode() + self.rng.randbytes(size // 2).hex().encode()

    def _appended(self, store, ends):
        self.record(Promises.is_seen, ends)
        if self._stores[store] == "sync":
            self.record(Promises.is_durable)


def minima_of(store):
    return {
        (topic, q): one.minimum
        for topic in store.topics.all()
        for q, one in store.offsets(topic).items()
    }


def maxima_of(store):
    return {
        (topic, q): one.maximum
        for topic in store.topics.all()
        for q, one in store.offsets(topic).items()
    }
