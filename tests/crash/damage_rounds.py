"""Rounds of damage: each round copies a store, damages the copy, then reads, verifies, recovers and
repairs the copy.

Only the body has a checksum in RocketMQ's format. Therefore body, queue, offsets and size of a
message that is read from a damaged log must be those that were written. Changed times, hosts,
flags, topic names and properties cannot be detected. A changed JSON file that is still valid cannot
be detected either: topics and group offsets may differ.

To repeat rounds: PYTHONPATH=store:tests python -m crash.damage_rounds FIRST-SEED [COUNT]
"""

import faulthandler
import logging
import random
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from crash import damage as made
from crash.damage import GROUP, LATER, REBUILT, damage, make_template
from crash.damage_look import Look, Truth, look
from pyrocket import Message, Store
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import lock_identity
from pyrocket.engine.reader import Reader
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.metadata.identity import load_identity
from pyrocket.testing import FileClock
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.sinks import publish
from support.stores import SMALL, reboot, words

LONGEST_ROUND = 30
"""Seconds; a round takes a tenth of a second."""

MEMORY = 8 << 30


class Round:
    """One copy of the template; the seed determines the damage."""

    def __init__(self, template, truth, root, seed):
        self.root, self.truth = root, truth
        rng = random.Random(seed)
        shutil.copytree(template, root, symlinks=True)
        self.clean, self.trusted = rng.random() < 0.5, rng.random() < 0.5
        if not self.clean:
            (root / "abort").touch()
            if rng.random() < 0.5:
                (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint()))
        if self.trusted:
            _trust_words(root)
        self.kind, self.what = damage(root, rng)

    def run(self):
        """Run the round; return its outcome."""
        before = look(self.root, self.truth, all_columns=True)
        report = before.attempt(verify, self.root)
        if self.kind in REBUILT and report is not None and report.ok and not before.errors:
            lost = before.lacks(self.truth)
            assert not lost or self.kind in ("state", "lock", "clock"), f"verify misses {lost}"
        if not self.trusted:
            _reboot(self.root)
        sent, refused = self._write()
        truth = self.truth.with_more(sent)
        after = look(self.root, truth)
        after.errors += refused
        self._check_nothing_lost(after, truth)
        if self.kind in REBUILT:
            self._check_mended(after, truth)
        self._check_timers()
        return self._outcome(before, report, after, refused)

    def _write(self):
        """Open the store for writing, append and close it; return the acknowledged messages and the
        errors.
        """
        outcome, sent = Look(), []
        store = outcome.attempt(lambda: Store.open(self.root))
        if store is not None:
            topics = outcome.attempt(store.topics.all) or {}
            for topic in sorted({*topics} - {LATER, TIMER_TOPIC}):
                message = Message(topic=topic, body=b"after " + topic.encode(), queue_id=0)
                result = outcome.attempt(store.append, message)
                if result is not None:
                    found = outcome.attempt(store.read, topic, 0, result.queue_offset, 1)
                    if found is None and outcome.errors[-1] == "STORE_DAMAGED":
                        # Earlier entries of the queue are lost; the log contains the messages.
                        found = outcome.attempt(store.lookup.query, topic, result.msg_id)
                    assert found, outcome.errors
                    assert found[0].body == message.body
                    sent += found
            outcome.attempt(store.groups.commit, GROUP, "orders", {1: 8})
            # Damage that does not affect reads cannot be detected.
            if self.kind in REBUILT or "removed" in self.what:
                outcome.attempt(lambda: publish(store, 1, made.PUBLISHED, topic=made.SUNK))
            outcome.attempt(store.close)
        return sent, outcome.errors

    def _check_nothing_lost(self, after, truth):
        """Check that acknowledged messages exist, or that their loss is reported."""
        lost = after.lacks(truth)
        if not lost or after.errors or self.kind in ("table", "backup", "topic ids", "identity"):
            return
        if self.kind in REBUILT:
            return  # `_check_mended` checks these kinds in more detail.
        for queue, offsets in lost.items():
            # A missing first log file looks like one that was deleted by cleaning.
            offsets = [offset for offset in offsets if offset >= after.minima.get(queue, 0)]
            if not offsets:
                continue
            cut = after.cuts.get(queue)
            assert cut is not None, f"{queue} has silently lost {offsets}"
            assert cut <= offsets[0], f"{queue} has lost {offsets}, but {cut} is reported"

    def _check_mended(self, after, truth):
        """Check that all messages are readable now or after a repair."""
        if not after.lacks(truth) and not after.errors and after.keys == truth.keys:
            return
        if "CLOCK_DAMAGED" in after.errors:
            (self.root / "pyrocket/clock").unlink()  # As the remedy in the error requires.
        repair(self.root)
        mended = look(self.root, truth)
        lost = mended.lacks(truth)
        assert not lost, f"lost after the repair: {lost} {mended.errors} {after.errors}"
        keys = [key for key in truth.keys if mended.keys.get(key) != truth.keys[key]]
        assert not keys, f"not found by key after repair: {keys} {mended.errors}"

    def _check_timers(self):
        """Check that each timer is delivered once, or at most twice without the services'
        cursors."""
        if self.kind not in REBUILT | {"cursors"} or self.kind == "clock":
            return
        outcome = Look()
        store = outcome.attempt(lambda: Store.open(self.root))
        if store is None:
            assert self.kind == "cursors", outcome.errors
            return
        with store:
            FileClock(self.root).advance(len(made.WAITING) * made.HOUR_MS)
            while store.deliver_due():
                pass
            offsets = store.offsets(LATER)[0]
            found = [one.body for one in store.read(LATER, 0, offsets.minimum, 1000)]
        assert {*found} == {*made.WAITING}
        assert len(found) == len(made.WAITING) or self.kind == "cursors", (
            "some timers were delivered twice"
        )

    def _outcome(self, before, report, after, refused):
        if before.errors:
            return "reported to readers"
        if report is not None and not report.ok:
            return "found by verify"
        if refused:
            return "reported to writers"
        return "cut" if after.lacks(self.truth) else "harmless"


def _trust_words(root):
    """Mark the copy's shared state as valid; otherwise the store detects the copy by its inode."""
    layout = Layout(root)
    page = words(root)
    page.validate_state(load_identity(layout, SMALL).key, lock_identity(layout.lock))
    page.close()


def _reboot(root):
    try:
        reboot(root)
    except (FileNotFoundError, ValueError):
        return  # The shared state is the damaged file.


def main(first, count=1):
    """Run the rounds; print each seed before its round, and failures to stderr."""
    faulthandler.enable()
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    io.sync = io.sync_directory = lambda target: None
    # No process recovers a store while another one reads it, so readers need not wait.
    Reader.recovery_seconds = Reader.poll_seconds = 0.0001
    shared = Path("/dev/shm")
    outcomes, failed = Counter(), 0
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        template = Path(folder) / "template"
        make_template(template)
        truth = Truth.of(template)
        for seed in range(first, first + count):
            sys.stdout.write(f"{seed}\n")
            sys.stdout.flush()
            faulthandler.dump_traceback_later(LONGEST_ROUND, exit=True)
            failed += _run_one(template, truth, Path(folder) / "store", seed, outcomes)
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"{dict(sorted(outcomes.items()))}\n")
    return 1 if failed else 0


def _run_one(template, truth, root, seed, outcomes):
    one = None
    try:
        one = Round(template, truth, root, seed)
        outcome = one.run()
        outcomes[f"{one.kind}: {outcome}"] += 1
    except Exception:
        how = (one.kind, one.what, one.clean, one.trusted) if one else ""
        sys.stderr.write(f"\nseed {seed}: {how}\n{traceback.format_exc(limit=-6)}")
        return 1
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
