"""Clients of one group that run in a broker's process, which is killed at a disk operation."""

import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

from pyrocket import Message, Store
from pyrocket.broker.broker import Broker
from pyrocket.broker.pop import group
from pyrocket.broker.sends import Sent
from pyrocket.disk import io
from pyrocket.engine.message_encoder import Origin
from pyrocket.errors import BrokerBusyError

from support.dying import STEPS
from support.stores import SMALL

INVISIBLE_MS = 30
CONFIG = replace(SMALL, log_file_bytes=1 << 20)
_CONSUMERS = 3
_LONGEST_S = 20


def die_at(step, half):
    """Kill this process at disk operation `step`, or with `half` after half of a write."""
    numbers = itertools.count(1)

    def dying(name, real):
        def operation(*given):
            if next(numbers) == step:
                if half and name == "write_at":
                    descriptor, data, at = given
                    real(descriptor, memoryview(data).cast("B")[: len(data) // 2], at)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        return operation

    for name in STEPS:
        setattr(io, name, dying(name, getattr(io, name)))


class Clients:
    """A producer and consumers that record each step in a diary."""

    def __init__(self, broker, diary, seed):
        self.broker, self.pop, self.seed = broker, broker.pop, seed
        self.diary = os.open(diary, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def record(self, *words):
        os.write(self.diary, b" ".join(words) + b"\n")

    def send(self):
        for number in itertools.count():
            body = b"%d-%d" % (self.seed, number)
            origin = Origin(unique_id=body.decode(), born_timestamp=int(time.time() * 1000))
            message = Message(topic="t", body=body, queue_id=number % 2)
            self.broker.sends.send([Sent(message, origin)]).result(10)
            self.record(b"sent", body)
            time.sleep(0.002)

    def consume(self, number):
        rng = random.Random(self.seed * 10 + number)
        while True:
            with suppress(BrokerBusyError):
                received = self.pop.receive("g", "t", max_messages=4, invisible_ms=INVISIBLE_MS)
                received.stored.result(10)
                for one in received.messages:
                    self.record(b"got", one.message.body, b"%d" % one.attempt)
                for one in received.messages:
                    self.end(rng.random(), one.message.body, one.handle)
                time.sleep(0.001 if received.messages else 0.005)

    def end(self, chance, body, handle):
        """Ack a message, forward it to the dead-letter topic, nack it, or let its invisible time
        pass.
        """
        if chance < 0.5:
            self.try_to(b"ack", body, lambda: self.pop.ack("g", "t", [handle]))
        elif chance < 0.6:
            self.try_to(b"bury", body, lambda: self.pop.forward_to_dlq("g", "t", handle))
        elif chance < 0.75:
            self.pop.change_invisible("g", "t", handle, 0).stored.result(10)

    def try_to(self, name, body, do):
        self.record(b"try-" + name, body)
        done = do()
        done.stored.result(10)
        self.record(name if done.valid[0] else b"no-" + name, body)

    def save(self):
        while True:
            time.sleep(0.05)
            self.pop.sweep()
            self.pop.snapshot()


def consume_until_death(path, diary, seed, step, half):
    """Send, receive, ack, nack and forward messages until the process dies."""
    # A snapshot may contain a message that is invisible while its ack is stored. The shorter time
    # makes the message visible again sooner.
    group._LEAVING_MS = 500
    die_at(step, half)
    broker = Broker(Store.open(path, config=CONFIG))
    clients = Clients(broker, diary, seed)
    work = [(clients.send,), (clients.save,)]
    work += [(clients.consume, number) for number in range(_CONSUMERS)]
    for task, *given in work:
        threading.Thread(target=task, args=given, daemon=True).start()
    time.sleep(_LONGEST_S)
    os.kill(os.getpid(), signal.SIGKILL)
