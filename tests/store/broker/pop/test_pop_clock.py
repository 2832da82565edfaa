"""A clock that is set back or forward keeps no message invisible for longer than asked."""

import pytest
from pyrocket import Store
from pyrocket.broker.pop.pop import Pop
from pyrocket.disk.layout import Layout
from pyrocket.formats.checked_json import decode_own, encode_own
from support.pops import at_once, bodies, popped, sent
from support.stores import SMALL, FakeClock

SECOND, HOUR = 1000, 3_600_000
INVISIBLE = 30 * SECOND


@pytest.fixture
def store(open_store):
    found = open_store()
    found.topics.create("t", read_queues=1, write_queues=1)
    return found


def received(pop):
    return bodies(pop.receive("g", "t", invisible_ms=INVISIBLE))


def test_messages_become_visible_on_time_after_the_clock_was_set_back(store, clock):
    pop = popped(store)
    sent(store, 1)
    assert received(pop) == [b"0"]
    clock.now -= HOUR
    assert received(pop) == []
    clock.now += INVISIBLE
    assert received(pop) == [b"0"]


def test_a_changed_invisible_time_outlives_a_clock_set_back(store, clock):
    pop = popped(store)
    sent(store, 1)
    (one,) = pop.receive("g", "t", invisible_ms=INVISIBLE).messages
    pop.change_invisible("g", "t", one.handle, 2 * INVISIBLE)
    clock.now -= HOUR
    assert received(pop) == []
    clock.now += 2 * INVISIBLE - 1
    assert received(pop) == []
    clock.now += 1
    assert received(pop) == [b"0"]


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_jump_of_the_wall_clock_has_no_effect(store, clock, jump):
    ages = FakeClock(0)
    store.groups.create("g")
    pop = Pop(store, at_once(store), ages=ages)
    sent(store, 1)
    assert received(pop) == [b"0"]
    clock.now += jump
    ages.now += INVISIBLE - 1
    assert received(pop) == []
    ages.now += 1
    assert received(pop) == [b"0"]


@pytest.mark.parametrize("clean", [True, False], ids=["from a snapshot", "from records"])
@pytest.mark.parametrize("step", [0, SECOND, HOUR])
def test_a_clock_set_back_before_a_restart_keeps_messages_for_their_invisible_time(
    path, clean, step
):
    clock = FakeClock()
    first = Store.open(path, create=True, clock=clock, config=SMALL)
    first.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(first)
    sent(first, 2)
    assert len(received(pop)) == 2
    if clean:
        pop.close()
    first.close()
    clock.now -= step
    with Store.open(path, clock=clock) as store:
        again = Pop(store, at_once(store))
        assert received(again) == []
        clock.now += INVISIBLE
        assert len(received(again)) == 2
        assert again.sweep().next_ms is not None


def test_a_snapshot_of_an_earlier_release_is_read(path):
    clock = FakeClock()
    first = Store.open(path, create=True, clock=clock, config=SMALL)
    first.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(first)
    sent(first, 1)
    received(pop)
    pop.close()
    first.close()
    file = Layout(path).pop
    content = decode_own(file, file.read_bytes())
    assert content.pop("now") == clock.now
    file.write_bytes(encode_own(file, content))
    clock.now -= HOUR
    with Store.open(path, clock=clock) as store:
        again = Pop(store, at_once(store))
        assert received(again) == []
        clock.now += INVISIBLE
        assert received(again) == [b"0"]
