"""Power loss at every point of a recorded run.

A scenario works through a `Session`, which notes what the store has promised by when.
`Recording.crash_points` replays the run, takes the power away after every operation, and gives each
disk that may be left to `check`.
"""

import copy
import itertools
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from crash.aftermath import check_aftermath
from crash.disk_model import DATA_MODES, NAME_MODES, Disk, materialise
from crash.promises import Promises
from crash.recorder import Recorder
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.state_page import STATE_FORMAT
from sinks import numbered, stage
from stores import SMALL, FakeClock, batch, message

CONFIG = SMALL

_FORMAT = STATE_FORMAT.to_bytes(8, sys.byteorder)


class Session:
    """What a scenario does, done to a store under record and noted."""

    def __init__(self, recorder, path, rng, promises):
        self.recorder, self.path, self.rng = recorder, path, rng
        self.clock, self.events, self._stores = FakeClock(), [], {}
        self.now = copy.deepcopy(promises)
        self._numbers = itertools.count(1_000_000 * rng.randrange(1000))

    def note(self, change, *arguments, at=None):
        """A promise changes now, or did when so many operations were done."""
        moment = len(self.recorder.ops) if at is None else at
        self.events.append((moment, change, arguments))
        change(self.now, *arguments)

    def open(self, *, flush="async", **options):
        config = replace(CONFIG, flush=flush, **options)
        store = Store.open(self.path, create=True, clock=self.clock, config=config)
        self._stores[store] = flush
        if store.epoch > self.now.epoch or not self.now.created:
            self.note(Promises.is_recovered, store.epoch, maxima_of(store))
        return store

    def create(self, store, topic="t", queues=2):
        self.note(Promises.topic_is_offered, topic, queues)
        store.create_topic(topic, read_queues=queues, write_queues=queues)
        self.note(Promises.topic_is_made, topic, queues, minima_of(store))

    def update(self, store, topic, queues):
        self.note(Promises.topic_is_offered, topic, queues)
        store.update_topic(topic, read_queues=queues, write_queues=queues)
        self.note(Promises.topic_is_made, topic, queues, minima_of(store))

    def delete(self, store, topic="t"):
        self.note(Promises.topic_may_go, topic)
        store.delete_topic(topic)
        self.note(Promises.topic_is_gone, topic)

    def look_at_topics(self, store):
        """After a crash: what may be there or not has been decided."""
        there, minima = store.topics(), minima_of(store)
        for topic in set(self.now.topics) - self.now.doubtful:
            if topic in there:
                self.note(Promises.topic_is_made, topic, there[topic].read_queues, minima)
            else:
                self.note(Promises.topic_is_missing, topic)

    def append(self, store, topic="t", queue_id=0, size=None, **more):
        self.clock.now += 1500
        begin, body = len(self.recorder.ops), self._body(size)
        sent = store.append(message(body, topic, queue_id, **more))
        queue = topic, queue_id
        self.note(Promises.is_offered, queue, sent.queue_offset, [body], at=begin)
        self._appended(store, {queue: sent.queue_offset + 1})

    def append_batch(self, store, topic="t", queue_ids=(0, 0, 1, 0), size=None, whole=False):
        self.clock.now += 1500
        begin, rows = len(self.recorder.ops), [self._body(size) for _ in queue_ids]
        before = {(topic, q): store.max_offset(topic, q) for q in sorted(set(queue_ids))}
        store.append_batch(batch(rows, list(queue_ids)), topic=topic, whole=whole)
        ends = {queue: store.max_offset(*queue) for queue in before}
        for queue, offset in before.items():
            mine = [body for body, q in zip(rows, queue_ids, strict=True) if q == queue[1]]
            self.note(Promises.is_offered, queue, offset, mine, at=begin)
        if whole:
            bounds = {queue: (before[queue], ends[queue]) for queue in before}
            self.note(Promises.is_offered_whole, bounds, at=begin)
        self._appended(store, ends)
        if whole:
            self.note(Promises.is_durable)

    def publish(self, store, number, queue_ids=(0, 0, 1, 0), size=None, run="run-1"):
        """Stage in two tasks and publish; what was published before is dropped."""
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
        told = store.sink.publish(one, staged)
        if not told.dropped:
            for queue, bodies in mine.items():
                self.note(Promises.is_offered, queue, before[queue], bodies, at=begin)
            self.note(Promises.is_offered_whole, bounds, at=begin)
            self.note(Promises.is_offered_once, number, bounds, at=begin)
            self._appended(store, {queue: end for queue, (_, end) in bounds.items()})
        self.note(Promises.is_published, number)
        self.note(Promises.is_durable)

    def flush(self, store):
        store.flush()
        self.note(Promises.is_durable)

    def clean(self, store, **limits):
        self.note(Promises.may_clean)
        store.clean(**limits)
        self.note(Promises.is_cleaned, minima_of(store))

    def close(self, store, *, clean=True):
        store.close(clean=clean)
        del self._stores[store]
        if clean and not self._stores:
            self.note(Promises.is_durable)

    def end(self):
        for store in self._stores:
            store.close(clean=False)

    def _body(self, size):
        size = self.rng.choice((0, 10, 100, 400, 1100)) if size is None else size
        return f"{next(self._numbers)}:".encode() + self.rng.randbytes(size // 2).hex().encode()

    def _appended(self, store, ends):
        self.note(Promises.is_seen, ends)
        if self._stores[store] == "sync":
            self.note(Promises.is_durable)


def minima_of(store):
    return {
        (topic, q): one.minimum
        for topic in store.topics()
        for q, one in store.offsets(topic).items()
    }


def maxima_of(store):
    return {
        (topic, q): one.maximum
        for topic in store.topics()
        for q, one in store.offsets(topic).items()
    }


class Recording:
    """One run of a scenario: its operations, its ledger, and the disk it began with."""

    def __init__(self, scenario, folder, seed, image=None, promises=None):
        self.image, self.promises = image or {}, promises or Promises()
        base = Path(folder) / "live"
        materialise(self.image, base)
        with Recorder(base, self.image) as recorder:
            session = Session(recorder, base / "store", random.Random(seed), self.promises)
            scenario(session)
            session.end()
        shutil.rmtree(base)
        self.ops, self.seed, self.folder = recorder.ops, seed, Path(folder)
        self.events = sorted(session.events, key=lambda event: event[0])

    def moments(self):
        """Yield (operations done, disk, promises) for every prefix of the run."""
        disk, promises = Disk(self.image), copy.deepcopy(self.promises)
        events = iter([*self.events, (len(self.ops) + 1, None, ())])
        event = next(events)
        for done in range(len(self.ops) + 1):
            while event[0] <= done:
                event[1](promises, *event[2])
                event = next(events)
            yield done, disk, promises
            if done < len(self.ops):
                disk.apply(self.ops[done])

    def crash_points(self, variants=1, share=1.0):
        """Yield (label, image, promises): `variants` disks for a share of the prefixes."""
        for done, disk, promises in self.moments():
            rng = random.Random(f"{self.seed}/{done}")
            if rng.random() >= share:
                continue
            for number in range(variants):
                mode = rng.choice(DATA_MODES), rng.choice(NAME_MODES)
                image = disk.crash(rng, *mode)
                _lose_what_goes_by_itself(image, rng)
                yield f"seed {self.seed}, {done} operations, {mode}, {number}", image, promises

    def last_point(self, data_mode, name_mode):
        """The disk at the end of the run, as a copy, and what was promised."""
        *_, (_, disk, promises) = self.moments()
        image = disk.crash(random.Random(self.seed), data_mode, name_mode)
        return image, copy.deepcopy(promises)

    def chosen_points(self, count, rng):
        """A few crash points with something to recover: copies, to go on from."""
        points = [
            (label, image, copy.deepcopy(promises))
            for label, image, promises in self.crash_points()
            if "store/abort" in image
        ]
        return rng.sample(points, min(count, len(points)))

    def check(self, label, image, promises):
        """Bring the disk of one crash point back to life and look at it."""
        base = self.folder / "after"
        materialise(image, base)
        try:
            check_aftermath(base / "store", promises, CONFIG)
        except BaseException as error:
            kept = self.folder / "failed"
            if not kept.exists():
                materialise(image, kept)
            error.add_note(f"after a power loss: {label}; the disk is kept in `failed`")
            raise
        finally:
            shutil.rmtree(base)


def _lose_what_goes_by_itself(image, rng):
    """The shared words and lock files are not written through io: they may be anything."""
    for name in ("mutex", "turnstile", "flush"):
        if "store/pyrocket" in image and rng.random() < 0.5:
            image[f"store/pyrocket/{name}"] = b""
    if "store" in image and rng.random() < 0.7:
        image["store/lock"] = rng.choice((b"lock", b""))
    if "store/pyrocket/state" in image:
        left = [bytes(4096), rng.randbytes(4096), _FORMAT + rng.randbytes(4088), None]
        image["store/pyrocket/state"] = rng.choice(left)
        if image["store/pyrocket/state"] is None:
            del image["store/pyrocket/state"]


def recover_only(session):
    """A recovery, and nothing else."""
    session.open(flush="manual")


class NoPower:
    """Nothing is fsynced while disks are brought back to life: that is only slow."""

    def __enter__(self):
        self._real = io.sync, io.sync_directory
        io.sync = io.sync_directory = lambda target: None

    def __exit__(self, *_):
        io.sync, io.sync_directory = self._real


def recover_and_go_on(session):
    """What comes after a crash: recovery, more of everything, and a clean end."""
    session.clock.now += 60_000
    store = session.open(flush="sync")
    session.look_at_topics(store)
    for topic in sorted(session.now.topics):
        if topic in store.topics():
            session.append(store, topic)
            session.append_batch(store, topic, (0, 0, 0))
    if session.now.batches:
        last, run = session.now.batches[-1][0], f"run-at-{session.clock.now}"
        for number in (last, last + 1):
            session.publish(store, number, run=run)
    session.create(store, "later", 1)
    session.append(store, "later")
    session.close(store)
