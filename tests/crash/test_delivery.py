"""Delayed messages are delivered once, even if a process dies or power is lost at any moment."""

import random
import sys

import pytest
from crash.children import deliver_until_step
from crash.mail import MINUTE, Mail, MailRecording, Postman
from crash.power_loss import HALVES, SHARES, NoPower
from crash.seeds import SEED
from pyrocket import Store
from support.delivering import bodies_of, delay, deliver_all, level_batch
from support.shares import STEPS, share
from support.stores import SMALL, FakeClock

pytestmark = pytest.mark.crash


# Killed processes


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("half", HALVES)
# In every run, test_every_step.py has a survivor, too.
@pytest.mark.parametrize("survivor", share([False, True], 1))
@pytest.mark.parametrize("every", STEPS)
def test_a_process_death_at_any_step_of_a_delivery_loses_and_repeats_no_message(
    nursery, path, tmp_path, half, survivor, every
):
    """Deliver five messages of two levels to two queues; many log files are created."""
    clock, expected = FakeClock(), []
    other = Store.open(path, config=SMALL, clock=clock) if survivor else None
    for step in range(0, 400, every):
        sender = Store.open(path, config=SMALL, clock=clock)
        for number in range(5):
            level, queue_id = 1 + number // 3, number % 2
            body = b"%d:%d:%d:%d" % (level, queue_id, step, number)
            delay(sender, level, body.ljust(300, b"."), queue_id=queue_id)
            expected.append(body)
        sender.close(clean=False)
        clock.now += 5000
        given = {"now": clock.now, "step": step, "half": half, "trace": tmp_path / "trace"}
        status = nursery.run(deliver_until_step, path=path, **given)
        assert status in (0, 9)
        one = other or Store.open(path, config=SMALL, clock=clock)
        clock.now += 1000
        deliver_all(one)
        found = [body.strip(b".") for queue in (0, 1) for body in bodies_of(one, "t", queue)]
        # Each level keeps its order; there is no order between two levels.
        assert sorted(found, key=first_two) == sorted(expected, key=first_two)
        if not survivor:
            one.close(clean=step % 2 == 0)
        if status == 0:
            break
    assert status == 0
    assert "apply_intent" in (tmp_path / "trace").read_text().split()
    if other:
        other.close()


@pytest.mark.usefixtures("quick_disk")
def test_concurrent_delivery_services_deliver_each_message_once(nursery, path, tmp_path):
    clock = FakeClock()
    bodies = [b"%d" % number for number in range(400)]
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.append_batch(level_batch(bodies), topic="t")
    given = {"path": path, "now": clock.now + 1000, "half": True, "trace": tmp_path / "trace"}
    children = [nursery.start(deliver_until_step, step=10**9, **given) for _ in range(4)]
    assert {nursery.wait(child) for child in children} == {0}
    clock.now += 1000
    with Store.open(path, config=SMALL, clock=clock) as store:
        deliver_all(store)
        assert bodies_of(store) == bodies


def first_two(body):
    """Return the level and the queue in a body."""
    return body[:3]


# Power losses


def scenario_levels(session):
    """Send messages of two levels; deliver and flush at intervals."""
    man = Postman(session)
    for number in range(12):
        man.send(1 + number % 2, "tu"[number % 3 == 2], number % 2 if number % 3 != 2 else 0)
        if number % 3 == 1:
            man.pass_time(2500)
        if number % 4 == 2:
            man.flush()
    man.pass_time(6000)
    man.flush()
    man.close(clean=False)


def scenario_batches(session):
    """Deliver messages that fill several log files, to two queues alternately."""
    man = Postman(session)
    for _ in range(3):
        man.send_many(1, 14, size=400)
        man.send(2)
        man.flush()
        man.pass_time(1000)
        man.send_many(2, 4, size=30)
        man.flush()
    man.pass_time(5000)
    man.close()


def scenario_checkpoints(session):
    """Let a minute pass, so that cursors are saved between deliveries."""
    man = Postman(session)
    for number in range(8):
        man.send(3, queue_id=number % 2)
        man.send(4, "u")
        man.flush()
        man.pass_time((9000, MINUTE)[number % 2])
        if number == 5:
            man.close()
            man = Postman(session)
    man.flush()
    man.close(clean=False)


def scenario_sync(session):
    man = Postman(session, flush="sync")
    for number in range(6):
        man.send(1, queue_id=number % 2, size=700)
        man.session.record(Mail.is_durable)
        man.pass_time(1000)
    man.close(clean=False)


def recover_and_go_on(session):
    """Recover after a crash, deliver, and append more messages of each kind."""
    session.clock.now += 4000
    man = Postman(session)
    man.send(1)
    man.pass_time(1000)
    man.flush()
    man.send_many(2, 6)
    man.pass_time(MINUTE)
    man.close()


SCENARIOS = [scenario_levels, scenario_batches, scenario_checkpoints, scenario_sync]


def lose_power(scenario, folder, seed, *, share, variants=1, chains=1):
    """Check crash points of a scenario, and crash points of the recovery after some of them. Return
    the number of crash points.
    """
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this run: {scenario.__name__} {seed}\n")
    rng, points = random.Random(seed), 0
    recording = MailRecording(scenario, folder, seed, promises=Mail())
    with NoPower():
        for label, image, mail in recording.crash_points(variants, share):
            recording.check(label, image, mail)
            points += 1
        for label, image, mail in recording.chosen_points(chains, rng):
            after = MailRecording(recover_and_go_on, folder, rng.random(), image, mail)
            for then, later, promised in after.crash_points(variants, share):
                after.check(f"{label}; then {then}", later, promised)
                points += 1
    return points


@pytest.mark.parametrize(("share", "least"), SHARES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_power_loss_at_some_points_loses_and_repeats_no_delivery(
    scenario, share, least, tmp_path
):
    assert lose_power(scenario, tmp_path, SEED, share=share) >= least


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_power_loss_at_any_point_loses_and_repeats_no_delivery(scenario, part, tmp_path):
    seed = SEED * 100 + part
    points = lose_power(scenario, tmp_path, seed, share=0.5, variants=2, chains=4)
    sys.stdout.write(f"{scenario.__name__}, part {part}: {points} crash points\n")
