"""Helpers to send and deliver timer messages."""

import numpy as np
import pyarrow as pa
from pyrocket import Store
from pyrocket.disk.shared_state import TIMER_QUEUE_OFFSET, TIMER_READ_OFFSET, TIMER_READ_TIME
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch

from support.inner import inner
from support.stores import SMALL, message

TIMER = "rmq_sys_wheel_timer"
HOUR, DAY = 3_600_000, 86_400_000


class Timing:
    """An open store whose timers are delivered by hand."""

    def __init__(self, path, clock, config=SMALL, **options):
        self.store = Store.open(path, create=True, config=config, clock=clock, **options)
        self.clock = clock
        self.timers, self.service = self.store.timers, self.store.timers.service
        self.store.topics.create("t", read_queues=2, write_queues=2)

    @property
    def writer(self):
        return inner(self.store).writer

    def send(self, body, after_ms, topic="t", queue_id=0, **more):
        """Send a message that is due after `after_ms`."""
        due = self.clock.now + after_ms
        return self.store.append(message(body, topic, queue_id, deliver_at_ms=due, **more))

    def run(self, most=1000):
        """Deliver until no message is due; return the number of steps."""
        done = 0
        for _ in range(most):
            step = self.service.deliver_due(self.writer, self.clock.now)
            if not step:
                return done
            done += step
        raise AssertionError("the delivery does not end")

    def next_due(self):
        with self.writer.try_exclusive():
            return self.service.next_due(self.writer, self.clock.now)

    def bodies(self, topic="t", queue_id=0):
        return [one.body for one in self.store.read(topic, queue_id, 0, 10_000)]

    def cursor(self):
        page = self.writer.page
        return page[TIMER_QUEUE_OFFSET], page[TIMER_READ_TIME], page[TIMER_READ_OFFSET]

    def close(self, **options):
        self.store.close(**options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close(clean=False)


def times(clock, after):
    """Return a column of times, given in ms from now."""
    return pa.array([clock.now + one for one in after], pa.timestamp("ms", "UTC"))


def park(timing, properties, body=b"x"):
    """Append a message with these system properties to the timer topic."""
    record = encode_record(
        topic=TIMER,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=encode_properties(properties),
        born_timestamp=timing.clock.now,
        store_timestamp=0,
    )
    one = EncodedBatch(
        topic=TIMER,
        data=pa.py_buffer(bytearray(record)),
        bounds=np.array([0, len(record)]),
        queue_ids=np.zeros(1, np.int32),
        tags_codes=np.zeros(1, np.int64),
    )
    with timing.writer.exclusive():
        timing.writer.append([one])
