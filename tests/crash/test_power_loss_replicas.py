"""Power losses of a primary that waits for its replica, or of the replica: what was acknowledged is
there after a promotion, and both sides go on.
"""

import random
import shutil
from types import SimpleNamespace

import pytest
from crash.disk_model import DATA_MODES, NAME_MODES, Disk, materialise
from crash.power_loss import NoPower
from crash.recorder import Recorder
from crash.seeds import SEED
from pyrocket import Store
from pyrocket.base.versions import RELEASE
from pyrocket.broker.replicas import Replicas, decode_block
from pyrocket.disk.layout import Layout
from pyrocket.metadata.role import RoleFile
from pyrocket.server.replica.promotion import promote
from pyrocket.tools.verify.verify import verify
from store.server.replica.test_replication import link_to
from support.replicas import assert_alike, first_offset, log_bytes
from support.sinks import publish
from support.stores import SMALL, batch

pytestmark = pytest.mark.crash

ROUNDS = 12


class Direct:
    """Answers the calls of a link in its own thread; `ends` has what the replica acknowledged."""

    def __init__(self, store):
        self.store, self.replicas, self.acknowledged = store, Replicas(store), lambda end: None

    def call(self, name, **given):
        if name == "Acknowledge":
            self.replicas.acknowledge(**given)
            self.acknowledged(given["end"])
        term = self.replicas.term
        return SimpleNamespace(release=RELEASE, store=self.store.uuid, primary="", term=term)

    def stream(self, _, store="", end=0, mark=None, **who):
        self.feed = self.replicas.connect(store=store, end=end, mark=mark, **who)
        return (block for block in iter(self.feed.next, None))

    def close(self):
        pass


def linked_directly(store, where):
    """Connect the replica at a path to a store in this process; return both ends."""
    direct, link = Direct(store), link_to("primary:1", where)
    link._client, link._thread = direct, SimpleNamespace(start=lambda: None, ident=None)
    link._lacks = lambda mark: store.history.holds(mark) is False
    link.start()
    return direct, link


def deliver(direct, link, most=1000):
    """Let the replica use at most so many blocks."""
    direct.feed._next_look = 0.0
    for block in iter(direct.feed.next, None):
        link._take(decode_block(block))
        most -= 1
        if not most:
            return


def replicate(base, recorder, rng):
    """Fill a primary and its replica; return [(operations done, end of what is acknowledged)].

    A part of an exactly-once batch is not acknowledged to anyone.
    """
    acknowledged, whole = [], [0]
    store = Store.open(base / "store", create=True, config=SMALL)
    direct, link = linked_directly(store, base / "replica")
    direct.acknowledged = lambda end: acknowledged.append(
        (len(recorder.ops), max(known for known in whole if known <= end))
    )
    for number in range(ROUNDS):
        rows = [b"%d" % row * rng.choice((1, 60, 400)) for row in range(rng.choice((1, 3, 9)))]
        if number % 3 == 0:
            store.topics.create(f"t{number}", read_queues=2, write_queues=2)
        store.append_batch(batch(rows, [row % 2 for row in range(len(rows))]), topic="t0")
        whole.append(store.position().published)
        if number % 3 == 1:
            publish(store, number // 3, rows, topic="t0")
            whole.append(store.position().published)
        if number % 4 == 2:
            store.groups.create("g")
            store.groups.commit("g", "t0", {0: number})
        if number == ROUNDS // 2:
            store.topics.delete("t3")
        deliver(direct, link, rng.choice((1, 1000)))
    deliver(direct, link)
    link.stop()
    store.close()
    return acknowledged


def moments(ops, acknowledged):
    """Yield (operations done, disk, acknowledged end) for every prefix of the operations."""
    disk, ends = Disk({}), iter([*acknowledged, (len(ops) + 1, 0)])
    end, (until, later) = 0, next(ends)
    for done in range(len(ops) + 1):
        while until <= done:
            end, (until, later) = later, next(ends)
        yield done, disk, end
        if done < len(ops):
            disk.apply(ops[done])


def after_power_loss(disk, rng, side):
    """Return a disk after a power loss of one side, whose other side was only rebooted."""
    lost = disk.crash(rng, rng.choice(DATA_MODES), rng.choice(NAME_MODES))
    kept = disk.crash(rng, "kept", "kept")
    own = {name: data for name, data in lost.items() if name.startswith(side)}
    others = {name: data for name, data in kept.items() if not name.startswith(side)}
    return {**own, **others}


def check_promotion(ours, theirs, whole, end):
    """Promote the replica, and let the earlier primary follow it."""
    promote(theirs)
    own = log_bytes(theirs)
    assert own[: len(whole)] == whole[: len(own)]
    assert len(own) >= end - first_offset(theirs)
    with Store.open(theirs, config=SMALL) as store:
        store.append_batch(batch([b"after"], [0]), topic="t0")
        if Layout(ours).identity.exists():
            direct, link = linked_directly(store, ours)
            deliver(direct, link)
            link.stop()
    assert verify(theirs).ok
    if ours.exists():
        assert_alike(theirs, ours)


@pytest.mark.parametrize("side", ["replica", "store"])
@pytest.mark.parametrize("share", [0.008, pytest.param(0.3, marks=pytest.mark.heavy)])
def test_a_power_loss_of_either_side_loses_nothing_acknowledged(tmp_path, side, share):
    """The points are evenly spaced: how many operations a replication takes depends on the time."""
    base, after, points = tmp_path / "live", tmp_path / "after", 0
    step = round(1 / share)
    first = random.Random(f"{SEED}/{side}").randrange(step)
    base.mkdir()
    with Recorder(base) as recorder:
        acknowledged = replicate(base, recorder, random.Random(SEED))
    whole = log_bytes(base / "store")
    with NoPower():
        for done, disk, end in moments(recorder.ops, acknowledged):
            rng = random.Random(f"{SEED}/{side}/{done}")
            if done % step != first:
                continue
            materialise(after_power_loss(disk, rng, side), after)
            ours, theirs = after / "store", after / "replica"
            try:
                if RoleFile(Layout(theirs)).read().primary and Layout(theirs).identity.exists():
                    check_promotion(ours, theirs, whole, end)
                else:
                    assert not end
                points += 1
            except BaseException as error:
                error.add_note(f"seed {SEED}, {side}, {done} operations, acknowledged {end}")
                raise
            shutil.rmtree(after)
    assert points > 2
