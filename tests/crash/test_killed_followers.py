"""A follower, or a promotion, dies at each single step; the next one continues or completes it."""

import shutil
from itertools import chain

import pytest
from crash.children import cut_until_step, follow_until_step, promote_until_step
from crash.power_loss import HALVES
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.metadata.role import RoleFile
from pyrocket.server.replica.promotion import promote
from support.replicas import (
    assert_alike,
    log_bytes,
    opened,
    pass_files,
    pass_on,
    published,
    replica_of,
)
from support.shares import FEW_STEPS
from support.sinks import publish
from support.stores import SMALL, batch, bodies, message, numbered, reboot

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("every", [8, FEW_STEPS[-1]])
def test_a_follower_that_dies_at_any_step_leaves_a_replica_that_continues(
    nursery, path, tmp_path, half, every
):
    """Between the rounds a topic is deleted and created again, and new files begin."""
    where = tmp_path / "replica"
    replica_of(path, where).close(clean=True)
    with Store.open(path, config=SMALL) as primary:
        for step in range(0, 400, every):
            grow(primary, step)
            trace = tmp_path / f"trace{step}"
            status = nursery.run(
                follow_until_step,
                primary=path,
                path=where,
                until=published(path),
                step=step,
                half=half,
                trace=trace,
            )
            assert status in (0, 9)
            assert log_bytes(path).startswith(log_bytes(where))
            if step % 2:
                reboot(where)
            follower = opened(where)
            pass_on(path, follower)
            pass_files(path, follower)
            follower.close(clean=step % 4 == 0)
            assert_alike(path, where)
            if status == 0:
                break
        assert status == 0


def grow(primary, step):
    rows = [f"{step}:{n}:".ljust(700, ".").encode() for n in range(6)]
    primary.append_batch(batch(rows, [n % 2 for n in range(6)]), topic="t")
    if step % 3 == 0:
        primary.topics.delete("t")
        primary.topics.create("t", read_queues=2, write_queues=2)
        primary.append(message(b"again"))
    primary.groups.create("g")
    primary.groups.commit("g", "t", {0: primary.max_offset("t", 0)})


@pytest.mark.parametrize("every", FEW_STEPS)
def test_a_follower_that_dies_while_it_cuts_a_tail_loses_nothing_else(
    nursery, path, tmp_path, every
):
    where = tmp_path / "replica"
    follower = replica_of(path, where)
    with Store.open(path, config=SMALL) as primary:
        grow(primary, 1)
        kept = published(path)
        grow(primary, 2)
        pass_on(path, follower)
        pass_files(path, follower)
        follower.close(clean=True)
        for step in range(0, 400, every):
            status = nursery.run(
                cut_until_step,
                path=where,
                offset=kept,
                step=step,
                half=False,
                trace=tmp_path / f"trace{step}",
            )
            follower = opened(where)
            assert follower.end >= kept
            assert log_bytes(path).startswith(log_bytes(where))
            pass_on(path, follower)
            pass_files(path, follower)
            follower.close(clean=True)
            assert_alike(path, where)
            if status == 0:
                break
        assert status == 0


@pytest.mark.parametrize("every", [5, FEW_STEPS[-1]])
def test_a_part_of_a_batch_is_cut_off_wherever_the_follower_has_died(
    nursery, path, tmp_path, every
):
    """A promotion cuts off an exactly-once batch that has arrived only in part."""
    empty, rows, counts = tmp_path / "empty", numbered(30, 700), set()
    follower = replica_of(path, empty)
    pass_files(path, follower)
    follower.close(clean=True)
    with Store.open(path, config=SMALL) as primary:
        start = published(path)
        publish(primary, 0, rows)
        until = (start + published(path)) // 2
    for step in range(0, 400, every):
        where = shutil.copytree(empty, tmp_path / f"replica{step}")
        status = nursery.run(
            follow_until_step,
            primary=path,
            path=where,
            until=until,
            step=step,
            half=False,
            trace=tmp_path / f"trace{step}",
            files=False,
        )
        counts.add(published(where))
        promote(where)
        with Store.open(where) as store:
            assert not any(bodies(store).values()), step
            publish(store, 0, rows)
            assert sorted(chain.from_iterable(bodies(store).values())) == sorted(rows)
        if status == 0:
            break
    assert status == 0
    assert len(counts) > 2


@pytest.mark.parametrize("every", FEW_STEPS)
def test_a_promotion_that_dies_at_any_step_is_completed_by_the_next(nursery, path, tmp_path, every):
    where = tmp_path / "replica"
    follower = replica_of(path, where)
    with Store.open(path, config=SMALL) as primary:
        grow(primary, 1)
        pass_on(path, follower)
        pass_files(path, follower)
        expected, epoch = bodies(primary), primary.history.epoch
    follower.close(clean=True)
    for step in range(0, 1000, every):
        copy = shutil.copytree(where, tmp_path / f"copy{step}")
        status = nursery.run(
            promote_until_step, path=copy, step=step, half=False, trace=tmp_path / f"trace{step}"
        )
        assert status in (0, 9)
        if RoleFile(Layout(copy)).read().primary:
            promote(copy)
        with Store.open(copy) as store:
            assert bodies(store) == expected
            assert store.history.epoch > epoch
            store.append(message(b"more"))
        assert RoleFile(Layout(copy)).read().term == 1
        if status == 0:
            break
    assert status == 0
