"""Crashes while timers are stored, cancelled and delivered: each timer is delivered once, on time.
`-m heavy` checks every point of every scenario; a run is repeated with its PYROCKET_SEED.
"""

import copy
import shutil
import sys

import pyarrow as pa
import pytest
from crash.children import deliver_until_step
from crash.disk_model import materialise
from crash.power_loss import CONFIG, HALVES, SHARES, NoPower, Recording
from crash.seeds import SEED
from crash.test_power_loss import folder
from pyrocket import Store
from support.delivering import deliver_all
from support.shares import STEPS
from support.stores import FakeClock, batch, message, reboot

pytestmark = pytest.mark.crash

HOUR = 3_600_000
LATER = 1_700_000_000_000 + 100 * HOUR

__all__ = ["folder"]


class Ledger:
    """A session with operations on timers and the promises about them."""

    def __init__(self, session):
        self.session, self.store = session, None

    def open(self, **options):
        self.store = self.session.open(**options)
        self.session.create(self.store)

    def send(self, body, after_ms):
        due = self.session.clock.now + after_ms
        at = len(self.session.recorder.ops)
        sent = self.store.append(message(body, deliver_at_ms=due))
        self.session.record(_offered, body, due, at=at)
        self.session.record(_sent, body)
        return sent.msg_id

    def cancel(self, body, msg_id):
        self.session.record(_cancelling, body)
        assert self.store.timers.cancel("t", msg_id)
        self.session.record(_cancelled, body)

    def wait(self, ms):
        self.session.clock.now += ms
        self.session.record(_clock_is, self.session.clock.now)
        deliver_all(self.store)

    def flush(self):
        self.store.flush()
        self.session.record(_durable)

    def fill(self):
        self.session.clock.now += 1
        self.store.append_batch(batch([b"-"] * 30, 1), topic="t")

    def clean(self):
        self.session.record(_may_be_cleaned, contents(self.store))
        self.session.clean(self.store, total_bytes=4096)

    def close(self):
        self.session.close(self.store)
        self.session.record(_durable)


def _recorded(promises):
    empty = {"due": {}, "sent": set(), "durable": set(), "doubtful": set(), "gone": set()}
    return promises.__dict__.setdefault("timers", empty | {"cancelled": set(), "now": 0})


def _offered(promises, body, due):
    _recorded(promises)["due"][body] = due


def _sent(promises, body):
    _recorded(promises)["sent"].add(body)


def _cancelling(promises, body):
    _recorded(promises)["doubtful"].add(body)


def _may_be_cleaned(promises, bodies):
    _recorded(promises)["doubtful"] |= set(bodies)


def _cancelled(promises, body):
    _recorded(promises)["cancelled"].add(body)


def _clock_is(promises, now):
    _recorded(promises)["now"] = now


def _durable(promises):
    recorded = _recorded(promises)
    recorded["durable"], recorded["gone"] = set(recorded["sent"]), set(recorded["cancelled"])


def some_are_delivered(session):
    ledger = Ledger(session)
    ledger.open(flush="manual")
    for number, after in enumerate([1000, 2 * HOUR, 500, 61_000, 3 * HOUR, 1000]):
        ledger.send(b"%d" % number, after)
    ledger.wait(1000)
    ledger.flush()
    ledger.send(b"early", 100)
    ledger.wait(60_000)
    ledger.fill()
    ledger.flush()
    ledger.wait(2 * HOUR)
    ledger.send(b"late", 5000)
    ledger.wait(5000)
    ledger.flush()
    ledger.wait(HOUR)
    ledger.close()
    ledger.open(flush="manual")
    ledger.send(b"last", 10)
    ledger.wait(10)


def some_are_cancelled(session):
    ledger = Ledger(session)
    ledger.open(flush="manual")
    ids = {}
    for number, after in enumerate([1000, 1000, HOUR, HOUR + 1]):
        ids[number] = ledger.send(b"%d" % number, after)
    ledger.cancel(b"1", ids[1])
    ledger.flush()
    ledger.wait(1000)
    ledger.cancel(b"2", ids[2])
    ledger.fill()
    ledger.flush()
    ledger.wait(HOUR)
    ledger.close()


def files_go(session):
    ledger = Ledger(session)
    ledger.open(flush="manual")
    ids = [ledger.send(b"%d" % number, HOUR + number) for number in range(4)]
    ledger.cancel(b"3", ids[3])
    for _ in range(3):
        ledger.fill()
    ledger.clean()
    ledger.send(b"4", 1000)
    ledger.wait(1000)
    ledger.flush()
    for _ in range(2):
        ledger.fill()
    ledger.clean()
    ledger.wait(HOUR)
    ledger.close()


def hours_pass(session):
    """Delete index files of hours while the deliveries from these files are not durable."""
    ledger = Ledger(session)
    ledger.open(flush="manual")
    for number in range(4):
        ledger.send(b"%d" % number, (number + 1) * HOUR)
    ledger.wait(61_000)
    ledger.flush()
    for number in range(4):
        ledger.wait(HOUR)
        if number == 2:
            ledger.flush()
    ledger.close()


SCENARIOS = [some_are_delivered, some_are_cancelled, files_go, hours_pass]


def check(path, recorded):
    """Recover at the time of the power loss and long after it; check the deliveries."""
    clock = FakeClock(max(recorded["now"], 1_700_000_000_000))
    delivered_at(path, clock, recorded, lambda body: recorded["due"][body] <= clock.now)
    reboot(path)
    clock.now = LATER
    found = delivered_at(path, clock, recorded, lambda body: True)
    missing = recorded["durable"] - set(found) - recorded["doubtful"]
    assert not missing, f"{missing} are missing"
    assert not set(found) & recorded["gone"], "a cancelled timer was delivered"


def delivered_at(path, clock, recorded, may_come):
    with Store.open(path, create=True, config=CONFIG, clock=clock) as store:
        while store.deliver_due():
            pass
        found = contents(store)
        assert all(map(may_come, found)), "a timer was delivered too early"
        assert len(found) == len(set(found)), f"delivered twice: {found}"
        assert set(found) <= recorded["due"].keys()
    return found


def contents(store):
    if "t" not in store.topics.all():
        return []
    known = store.offsets("t").get(0)
    count = known.maximum - known.minimum
    return [one.body for one in store.read("t", 0, known.minimum, count)] if count else []


def lose_power(scenario, folder, seed, share):
    sys.stdout.write(f"PYROCKET_SEED={seed}, {scenario.__name__}\n")
    recording = Recording(scenario, folder, seed)
    points = 0
    with NoPower():
        for label, image, promises in recording.crash_points(1, share):
            base = folder / "after"
            materialise(image, base)
            try:
                check(base / "store", _recorded(copy.deepcopy(promises)))
            except BaseException as error:
                error.add_note(f"{scenario.__name__}, {label}")
                raise
            finally:
                shutil.rmtree(base)
            points += 1
    return points


@pytest.mark.parametrize(("share", "least"), SHARES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_power_loss_at_some_points_loses_and_repeats_no_timer(scenario, share, least, folder):
    assert lose_power(scenario, folder, SEED, share) >= least


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_power_loss_at_any_point_loses_and_repeats_no_timer(scenario, folder):
    assert lose_power(scenario, folder, SEED, 1.0) > 50


# Killed processes


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("every", STEPS)
def test_a_process_death_at_any_step_of_a_delivery_loses_and_repeats_no_timer(
    nursery, path, tmp_path, half, every
):
    """Some timers are due now, some later, and one is cancelled; many log files are created."""
    clock, expected = FakeClock(), []
    with Store.open(path, create=True, config=CONFIG, clock=clock) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    for step in range(0, 400, every):
        with Store.open(path, config=CONFIG, clock=clock) as sender:
            for number, after in enumerate([5000, 3000, 4000, 5000 + HOUR]):
                body = b"%d:%d" % (step, number)
                due = clock.now + after
                sent = sender.append(message(body.ljust(300, b"."), deliver_at_ms=due))
                expected.append((due, body))
            due, body = expected.pop()
            if step % 2:
                assert sender.timers.cancel("t", sent.msg_id)
            else:
                expected.append((due, body))
        clock.now += 5000
        given = {"now": clock.now, "step": step, "half": half, "trace": tmp_path / "trace"}
        status = nursery.run(deliver_until_step, path=path, **given)
        assert status in (0, 9)
        with Store.open(path, config=CONFIG, clock=clock) as store:
            clock.now += 1000
            deliver_all(store)
            due = [one for one in sorted(expected) if one[0] <= clock.now]
            assert [body.strip(b".") for body in contents(store)] == [body for _, body in due]
        if status == 0:
            break
    assert status == 0
    assert "apply_intent" in (tmp_path / "trace").read_text().split()
    clock.now += HOUR
    with Store.open(path, config=CONFIG, clock=clock) as store:
        deliver_all(store)
        assert sorted(body.strip(b".") for body in contents(store)) == sorted(
            body for _, body in expected
        )


@pytest.mark.usefixtures("quick_disk")
def test_concurrent_delivery_services_deliver_each_timer_once(nursery, path, tmp_path):
    clock = FakeClock()
    with Store.open(path, create=True, config=CONFIG, clock=clock) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        rows = [b"%d" % number for number in range(400)]
        dues = pa.array([clock.now + 1 + n for n in range(400)], pa.timestamp("ms", "UTC"))
        store.append_batch(batch(rows, 0, deliverTimestamp=dues), topic="t")
    given = {"path": path, "now": clock.now + 1000, "half": True, "trace": tmp_path / "trace"}
    children = [nursery.start(deliver_until_step, step=10**9, **given) for _ in range(4)]
    assert {nursery.wait(child) for child in children} == {0}
    clock.now += 1000
    with Store.open(path, config=CONFIG, clock=clock) as store:
        deliver_all(store)
        assert contents(store) == rows
