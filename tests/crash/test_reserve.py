"""A broker on a full disk: it starts, delivers, takes acks and commits, and cleans.

Each test has its own disk, a small tmpfs; mounting a tmpfs requires root.
"""

import random
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.broker.broker import Broker
from pyrocket.errors import StoreUnavailableError
from pyrocket.tools.verify.verify import verify
from support.broker import kill
from support.disks import mounted
from support.inner import inner
from support.pops import bodies as received_bodies
from support.pops import handles
from support.stores import SMALL, FakeClock, bodies, log_files, message, reboot

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

MIB = 1 << 20
RESERVE_BYTES = 16 * MIB
CONFIG = replace(SMALL, log_file_bytes=64 * 1024, queue_file_entries=1000, exclusive=True)
SENT = [b"%04d" % n + b"." * 1000 for n in range(500)]
FULL = "the disk is full"


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk", 64 * MIB) as one:
        yield one


@pytest.fixture
def clock():
    return FakeClock()


@contextmanager
def serving(disk, clock, *, clean=True, **options):
    """Yield a broker; without `clean`, it ends as if it were killed."""
    store = Store.open(disk.store, create=True, config=replace(CONFIG, **options), clock=clock)
    broker = Broker(store)
    if "t" not in store.topics.all():
        store.topics.create("t", read_queues=1, write_queues=1)
        for body in SENT:
            store.append(message(body))
        store.groups.create("g")
    try:
        yield broker
    finally:
        if clean:
            broker.close()
        else:
            kill(broker)


def reserve(disk):
    return disk.store / "pyrocket/reserve"


def tend(broker, clock):
    """Let a round of maintenance pass."""
    clock.now += 10_000
    inner(broker.store).writer.run_maintenance()


def consume(broker):
    """Receive, ack and commit some messages; return their bodies."""
    found = broker.pop.receive("g", "t", max_messages=10)
    got = received_bodies(found)
    broker.pop.ack("g", "t", handles(found)).stored.result(10)
    broker.store.groups.commit("h", "t", {0: len(got)})
    return got


def code_or_none(call, *arguments):
    try:
        call(*arguments)
    except StoreUnavailableError as error:
        return error.code
    return None


def code_of(call):
    with pytest.raises(StoreUnavailableError) as caught:
        call()
    assert caught.value.remedy
    return caught.value.code


def test_a_broker_keeps_space_that_is_allocated_and_no_other_writer_does(disk, clock):
    with Store.open(disk.store, create=True, config=CONFIG, clock=clock):
        assert not reserve(disk).exists()
    with serving(disk, clock):
        assert reserve(disk).stat().st_size == RESERVE_BYTES
        assert reserve(disk).stat().st_blocks * 512 >= RESERVE_BYTES
    made = reserve(disk).stat().st_ino
    with serving(disk, clock):
        assert reserve(disk).stat().st_ino == made


def test_messages_do_not_fill_the_disk_so_far_that_the_reserve_is_needed(disk, clock):
    with serving(disk, clock) as broker:
        disk.fill(left=10 * MIB)
        body = random.Random(1).randbytes(50_000)
        codes = {code_or_none(broker.store.append, message(body)) for _ in range(80)}
        assert codes == {None, "DISK_FULL"}
        assert broker.trouble == FULL
        assert consume(broker) == SENT[:10]
        assert reserve(disk).exists()


def test_on_a_full_disk_acks_and_commits_go_on_and_messages_are_refused(disk, clock):
    with serving(disk, clock) as broker:
        assert broker.trouble == ""
        disk.fill()
        assert broker.trouble == FULL
        assert code_of(lambda: broker.store.append(message(b"no"))) == "DISK_FULL"
        assert consume(broker) == SENT[:10]
        assert not reserve(disk).exists()
        assert broker.trouble == FULL, "messages must not use the space of the reserve"
        assert code_of(lambda: broker.store.append(message(b"no"))) == "DISK_FULL"
        disk.free()
        tend(broker, clock)
        assert reserve(disk).exists()
        assert broker.trouble == ""
        assert broker.store.append(message(b"yes")).queue_offset == len(SENT)
        assert consume(broker) == SENT[10:20]


@pytest.mark.parametrize("booted", [False, True], ids=["same boot", "after a boot"])
def test_a_killed_broker_starts_again_on_a_full_disk(disk, clock, booted):
    with serving(disk, clock, clean=False) as broker:
        broker.store.flush()
        assert consume(broker) == SENT[:10]
        broker.store.flush()
    if booted:
        reboot(disk.store)
    disk.fill()
    with serving(disk, clock) as broker:
        assert bodies(broker.store)[0] == SENT
        assert broker.trouble == FULL
        assert consume(broker) == SENT[10:20]
        broker.store.clean(total_bytes=200_000)
        disk.free()
        tend(broker, clock)
        assert broker.store.append(message(b"yes")).queue_offset == len(SENT)
    assert not verify(disk.store).findings


def test_without_the_reserve_a_broker_reads_and_cleans_only(disk, clock):
    with serving(disk, clock) as broker:
        consume(broker)
        broker.store.flush()  # Else its thread would use the reserve while the disk is filled.
        disk.fill()
        consume(broker)
        assert not reserve(disk).exists()
        disk.fill()
        assert bodies(broker.store)[0] == SENT
        assert code_of(lambda: broker.store.append(message(b"no"))) == "DISK_FULL"
        assert code_of(lambda: consume(broker)) == "DISK_FULL"
        assert code_of(lambda: broker.store.groups.commit("h", "t", {0: 1})) == "DISK_FULL"
        assert broker.trouble == FULL
        count = len(log_files(disk.store))
        broker.store.clean(total_bytes=200_000)
        assert len(log_files(disk.store)) < count
        first = broker.store.min_offset("t", 0)
        disk.free()
        tend(broker, clock)
        clock.now += 60_000
        assert consume(broker) == SENT[first : first + 10]


def test_a_broker_that_lost_its_reserve_is_started_again_in_the_same_boot(disk, clock):
    with serving(disk, clock, clean=False) as broker:
        broker.store.flush()
        disk.fill()
        consume(broker)
        disk.fill()
    with serving(disk, clock, clean=False) as broker:
        assert bodies(broker.store)[0] == SENT
        assert broker.trouble == FULL
        broker.store.clean(total_bytes=200_000)
        disk.free()
        tend(broker, clock)
        assert broker.store.append(message(b"yes")).queue_offset == len(SENT)


def test_a_writer_without_a_broker_deletes_the_reserve_of_a_full_disk_only(disk, clock):
    with serving(disk, clock):
        pass
    with Store.open(disk.store, config=CONFIG, clock=clock) as store:
        store.append(message(b"more"))
        assert reserve(disk).exists()
        disk.fill()
        store.groups.commit("g", "t", {0: 1})
        assert not reserve(disk).exists()
        disk.free()
        clock.now += 10_000
        store.append(message(b"more"))
        assert not reserve(disk).exists()
