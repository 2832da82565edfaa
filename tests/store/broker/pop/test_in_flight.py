"""The table of messages in flight agrees with a dictionary, and is small and fast."""

import random
import time

import numpy as np
from pyrocket.broker.pop.events import Deliver, Start
from pyrocket.broker.pop.in_flight import InFlight
from pyrocket.broker.pop.queue import QueueState
from support.pops import popped, sent

LARGE = 100_000


def large():
    """A queue with 10^5 messages in flight that become visible one after the other."""
    state = QueueState()
    state.apply(Start("g", "t", 0, 0))
    for first in range(0, LARGE, 1000):
        offsets = range(first, first + 1000)
        ones = [1] * 1000
        state.apply(Deliver("g", "t", 0, first, first + 1000, 7, 1, first, offsets, ones, ones, []))
    return state


def test_the_table_agrees_with_a_dictionary():
    table, known, rng = InFlight(), {}, random.Random(1)
    for offset in range(3000):
        row = table.add(offset, attempt=0)
        visible = rng.randrange(1000)
        table.deliver(row, attempt=1, visible=visible, pop=5, since=3)
        known[offset] = visible
        for old in rng.sample(sorted(known), min(len(known), 1)) * (rng.random() < 0.9):
            table.remove(table.find(old))
            del known[old]
        if offset % 7 == 0:
            table.tidy()
        if offset % 50 == 0:
            now = rng.randrange(1000)
            rows = table.visible_rows(now)
            assert table.offset[rows].tolist() == [n for n in known if known[n] <= now]
            later = [ms for ms in known.values() if ms > now]
            assert table.next_after(now) == min(later, default=None)
            assert table.first() == min(known, default=None)
        assert len(table) == len(known)
    assert table.find(5000) == -1


def test_a_message_in_flight_takes_at_most_200_bytes():
    state = large()
    assert len(state.flight) == LARGE
    assert state.flight.nbytes / LARGE <= 100


def test_acked_messages_free_their_memory():
    state = large()
    for offset in range(LARGE - 10):
        state.flight.remove(state.flight.find(offset))
        state.flight.tidy()
    assert state.committed == LARGE - 10
    assert state.flight.nbytes < 10_000


def test_a_sweep_of_a_hundred_thousand_messages_takes_less_than_100_ms(open_store, clock):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(store, max_in_flight=2 * LARGE)
    sent(store, 1)
    pop.receive("g", "t")
    pop.sweep()
    pop._states.known("g").queues["t", 0] = large()
    clock.now += 1
    pop._states.known("g").queues["t", 0].flight.show(0, clock.now + 60_000)
    pop._saved_ms = pop._committed_ms = clock.now
    times = []
    for _ in range(5):
        began = time.perf_counter()
        swept = pop.sweep()
        times.append(time.perf_counter() - began)
    assert swept.next_ms == clock.now + 60_000
    assert min(times) < 0.1


def test_a_state_restored_from_a_snapshot_equals_the_original():
    state = large()
    again = QueueState.from_json(state.to_json())
    assert (again.next, again.committed, len(again.flight)) == (LARGE, 0, LARGE)
    for name, column in state.flight.columns().items():
        assert np.array_equal(column, again.flight.columns()[name])
