"""Computes the lag of a group in each of its queues."""

from collections.abc import Callable, Iterable

from pyrocket.broker.pop.group import GroupState, Place
from pyrocket.broker.pop.values import DeliveryLag, Lags
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.message import QueueOffsets
from pyrocket.services.consumption import Consumption

FirstOffset = Callable[[str, Place], tuple[int | None, int]]
"""Returns a group's committed offset in a queue, and the offset at which it starts to receive."""


def lags_of(
    storage: Consumption, state: GroupState, places: Iterable[Place], first_offset: FirstOffset
) -> Lags:
    """Return the lag in each queue. The caller must hold the group's lock."""
    lags: dict[Place, DeliveryLag] = {}
    for place in places:
        known, queue = storage.bounds(*place), state.queues.get(place)
        if queue is None:
            committed = cursor = first_offset(state.name, place)[1]
            in_flight = 0
        else:
            committed, cursor, in_flight = queue.committed, queue.next, len(queue.flight)
        ready = max(known.maximum - max(cursor, known.minimum), 0)
        delay = _delay_ms(storage, place, committed, known) if in_flight + ready else 0
        lags[place] = DeliveryLag(known.maximum, committed, in_flight, ready, delay)
    return lags


def _delay_ms(storage: Consumption, place: Place, committed: int, known: QueueOffsets) -> int:
    oldest = max(committed, known.minimum)
    if oldest >= known.maximum:
        return 0
    try:
        return max(storage.now() - storage.store_time(*place, oldest), 0)
    except (OffsetOutOfRangeError, StoreDamagedError):
        return 0
