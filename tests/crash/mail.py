"""Records which delayed messages were sent, durable and delivered, to check them after power
losses.

A scenario uses a `Postman`, which records the store's promises in a `Mail`.
"""

import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

import pyarrow as pa
from crash.disk_model import materialise
from crash.power_loss import CONFIG, Recording
from pyrocket import Store
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from support.delivering import deliver_all
from support.stores import FakeClock, batch, message, scan

MINUTE = 60_000
LATER = FakeClock(1_700_000_000_000 + 600 * MINUTE)
"""A clock at which every message is due."""


@dataclass
class Mail:
    """`sent` maps each way to its bodies in order; the messages of one way are delivered in
    order.
    """

    sent: dict = field(default_factory=lambda: defaultdict(list))
    answered: set = field(default_factory=set)
    durable: set = field(default_factory=set)

    def is_sent(self, way, bodies):
        self.sent[way] += bodies

    def is_answered(self, bodies):
        self.answered |= set(bodies)

    def is_recovered(self):
        """After a recovery, messages that were not durable may be lost."""
        self.answered = set(self.durable)

    def is_durable(self):
        self.durable |= self.answered


class Postman:
    """Sends delayed messages to two queues of topic t and one queue of topic u, and delivers
    them.
    """

    def __init__(self, session, **config):
        self.session, self.clock = session, session.clock
        config = replace(CONFIG, **config)
        self.store = Store.open(session.path, create=True, clock=self.clock, config=config)
        self.store.topics.create("t", read_queues=2, write_queues=2)
        self.store.topics.create("u", read_queues=1, write_queues=1)
        if session.recorder.image:
            session.record(Mail.is_recovered)
        self._count = sum(map(len, session.now.sent.values()))

    def send(self, level, topic="t", queue_id=0, size=100):
        """Send one message with a delay level."""
        body = self._body(size)
        mail = message(body, topic, queue_id, delay_level=level)
        self._record((level, topic, queue_id), [body], lambda: self.store.append(mail))

    def send_many(self, level, count, size=100):
        """Send messages with a delay level to both queues of t alternately, as a batch."""
        bodies = [self._body(size) for _ in range(count)]
        levels = pa.array([level] * count, pa.int32())
        rows = batch(bodies, [n % 2 for n in range(count)], delayLevel=levels)
        began = len(self.session.recorder.ops)
        self.store.append_batch(rows, topic="t")
        for queue_id in (0, 1):
            self._sent((level, "t", queue_id), bodies[queue_id::2], began)

    def pass_time(self, ms):
        """Advance the clock, and deliver the messages that are due."""
        self.clock.now += ms
        deliver_all(self.store)

    def flush(self):
        self.store.flush()
        self.session.record(Mail.is_durable)

    def close(self, *, clean=True):
        self.store.close(clean=clean)
        if clean:
            self.session.record(Mail.is_durable)

    def _record(self, way, bodies, action):
        began = len(self.session.recorder.ops)
        action()
        self._sent(way, bodies, began)

    def _sent(self, way, bodies, began):
        self.session.record(Mail.is_sent, way, bodies, at=began)
        self.session.record(Mail.is_answered, bodies)

    def _body(self, size):
        self._count += 1
        return b"%06d:" % self._count + self.session.rng.randbytes(size // 2).hex().encode()


class MailRecording(Recording):
    """A recording whose crash points must keep the promises of a Mail."""

    def check(self, label, image, promises):
        base = self.folder / "after"
        materialise(image, base)
        try:
            check_delivered(base / "store", promises)
        except BaseException as error:
            error.add_note(f"after a power loss: {label}")
            raise
        finally:
            shutil.rmtree(base)


def check_delivered(path, mail):
    """Recover and advance the clock: durable messages must be delivered in order, and no message
    twice.
    """
    with Store.open(path, create=True, config=CONFIG, clock=LATER) as store:
        deliver_all(store)
        found = delivered(store)
    check_mail(found, mail)
    with Store.open(path, config=CONFIG, clock=LATER) as store:
        deliver_all(store)
        assert delivered(store) == found, "all messages had been delivered before"


def check_mail(found, mail):
    """Compare the delivered messages with the sent ones."""
    every = [body for bodies in found.values() for body in bodies]
    twice = [body[:6] for body, count in Counter(every).items() if count > 1]
    assert not twice, f"delivered twice: {twice}"
    lost = sorted(body[:6] for body in mail.durable - set(every))
    assert not lost, f"never delivered: {lost}"
    for (_, *queue), bodies in mail.sent.items():
        mine = [body for body in found.get(tuple(queue), []) if body in bodies]
        assert mine == [body for body in bodies if body in mine], f"out of order in {queue}"
    strange = set(every) - {body for bodies in mail.sent.values() for body in bodies}
    assert not strange


def delivered(store):
    """Return queue → bodies, without system topics."""
    return {
        (topic, queue_id): [body for _, body in scan(store, topic, queue_id)]
        for topic in store.topics.all()
        if topic not in CLOSED_TO_SENDERS and not topic.startswith(SYSTEM_PREFIX)
        for queue_id in store.offsets(topic)
    }
