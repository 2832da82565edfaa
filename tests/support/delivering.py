"""Helpers to send messages with delay levels and to deliver them by hand."""

import pyarrow as pa
from pyrocket.disk.shared_state import NEXT_DUE, level_field
from pyrocket.engine.service_runner import ServiceRunner
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.services.delay.schedule_service import DeliveryLimits, ScheduleService

from support.inner import inner
from support.stores import batch, message

LEVELS_MS = [1000, 5000, 10_000, 30_000, 60_000]
"""The delays of levels 1 to 5, in milliseconds."""


def delay(store, level, *bodies, topic="t", queue_id=0, **more):
    """Send messages with a delay level."""
    for body in bodies:
        store.append(message(body, topic, queue_id, delay_level=level, **more))


def level_batch(bodies, level=1, queue_id=0, **more):
    """Return a batch of messages with one delay level."""
    levels = pa.array([level] * len(bodies), pa.int32())
    return batch(bodies, queue_id, delayLevel=levels, **more)


def bodies_of(store, topic="t", queue_id=0):
    """Return the bodies delivered to a queue."""
    return [one.body for one in store.read(topic, queue_id, 0, 10_000)]


def waiting(store, level):
    """Return all bodies in a level's queue, including delivered messages."""
    known = inner(store).reader.system_offsets(SCHEDULE_TOPIC, level - 1)
    pieces = inner(store).reader.records(SCHEDULE_TOPIC, level - 1, known.minimum, known.maximum)
    return [body.as_py() for piece in pieces for body in piece.records.bodies()]


def deliver_all(store):
    """Deliver all due messages, by several calls: one call of `deliver_due` returns after half a
    second.
    """
    while store.deliver_due():
        pass


class Driver:
    """Delivers due messages of an open store, but only when a test calls it."""

    def __init__(self, store, **limits):
        self.hooks = inner(store).services.hooks
        self.levels = ScheduleService(
            inner(store).engine.layout, inner(store).reader, DeliveryLimits(**limits)
        )
        self.writer = inner(store).writer
        self.hooks.after_section.clear()
        self.runner = ServiceRunner(inner(store).engine, [self.levels])

    def once(self):
        """Deliver one part of the due messages."""
        return self.runner.run_due(self.writer)

    def all(self):
        """Deliver all due messages; return their number."""
        total = 0
        while done := self.once():
            total += done
        return total

    @property
    def next_due(self):
        return self.writer.page[NEXT_DUE]

    def cursor(self, level):
        return self.writer.page[level_field(level)]

    def set_cursor(self, level, offset):
        self.writer.page[level_field(level)] = offset
