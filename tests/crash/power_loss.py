"""Power loss at every point of a recorded run.

A scenario uses a `Session`, which records when the store's promises change.
`Recording.crash_points` replays the run, simulates power losses after its operations, and yields
the resulting disks with the promises at that moment.
"""

import copy
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from crash.aftermath import check_aftermath, check_snapshot
from crash.disk_model import DATA_MODES, NAME_MODES, Disk, materialise
from crash.promises import Promises
from crash.recorder import Recorder
from crash.session import CONFIG, Session
from pyrocket.disk import io
from pyrocket.disk.shared_state import STATE_FORMAT

SHARES = [pytest.param(0.02, 0 if os.environ.get("PYROCKET_EXPLORE") else 3, id="few")]
"""The share of a scenario's crash points that is checked, and the minimum number. Every run checks
the same few, with PYROCKET_EXPLORE others; `-m heavy` checks most or all.
"""

HALVES = [pytest.param(False, id="between", marks=pytest.mark.heavy), pytest.param(True, id="torn")]
"""Whether a process dies between two writes, or in the middle of one, which leaves half of it."""

_FORMAT = STATE_FORMAT.to_bytes(8, sys.byteorder)


class Recording:
    """One run of a scenario: its operations, its promises, and the initial disk."""

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
        """Return a copy of the disk at the end of the run, and the promises."""
        *_, (_, disk, promises) = self.moments()
        image = disk.crash(random.Random(self.seed), data_mode, name_mode)
        return image, copy.deepcopy(promises)

    def chosen_points(self, count, rng):
        """Return copies of a few crash points that need recovery, from which scenarios can
        continue; they are chosen from about twenty.
        """
        points = [
            (label, image, copy.deepcopy(promises))
            for label, image, promises in self.crash_points(share=20 / len(self.ops))
            if "store/abort" in image
        ]
        return rng.sample(points, min(count, len(points)))

    def check(self, label, image, promises):
        """Restore the disk of one crash point, open the store and check it."""
        base = self.folder / "after"
        materialise(image, base)
        try:
            check_aftermath(base / "store", promises, CONFIG)
            check_snapshot(base / "snapshot", promises)
        except BaseException as error:
            kept = self.folder / "failed"
            if not kept.exists():
                materialise(image, kept)
            error.add_note(f"after a power loss: {label}; the disk is kept in `failed`")
            raise
        finally:
            shutil.rmtree(base)


def _lose_what_goes_by_itself(image, rng):
    """Give lock files and the shared state, which are not written through `disk.io`, any
    content.
    """
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
    """A scenario that only recovers."""
    session.open(flush="manual")


class NoPower:
    """Disables fsync, which only costs time while disks are restored."""

    def __enter__(self):
        self._real = io.sync, io.sync_directory
        io.sync = io.sync_directory = lambda target: None

    def __exit__(self, *_):
        io.sync, io.sync_directory = self._real


def recover_and_go_on(session):
    """After a crash, recover, append more of everything, and shut down cleanly."""
    session.clock.now += 60_000
    store = session.open(flush="sync")
    session.look_at_topics(store)
    for topic in sorted(session.now.topics):
        if topic in store.topics.all():
            session.append(store, topic)
            session.append_batch(store, topic, (0, 0, 0))
    if session.now.batches:
        last, run = session.now.batches[-1][0], f"run-at-{session.clock.now}"
        for number in (last, last + 1):
            session.publish(store, number, run=run)
    session.look_at_groups(store)
    for topic, group in sorted(session.now.groups):
        session.commit(store, group, {0: store.max_offset(topic, 0)}, topic)
    session.create(store, "later", 1)
    session.append(store, "later")
    session.close(store)
