"""Processes that produce and consume.

A consumer appends a line to the file for each message of which its listener is done, and a producer
the body of each acknowledged message. A body is `KEY.NUMBER`; the numbers of a key begin with 0.
"""

import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyrocket import Message
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from pyrocket.errors import PyrocketError
from pyrocket.remote.lookup import RouteLookup

from support.forked import Forked
from support.name_server import wait_until

TOPIC, GROUP = "orders", "billing"


class Delivery(NamedTuple):
    """One line of a consumer. The time is that of a clock which all processes share."""

    time_ns: int
    queue: str
    key: str
    number: int

    @property
    def body(self):
        return f"{self.key}.{self.number}"


def start(role, endpoint, file, **options):
    """Start a process."""
    work = partial({"consume": consume, "produce": produce}[role], **options)
    with Path(f"{file}.log").open("w") as log:
        return Forked(work, endpoint, str(file), log=log)


def stop(process):
    """Stop a process gracefully, and check that it ended without an error."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@contextmanager
def processes():
    """Yield a function that starts a process; kill all that still run at the end."""
    running = []

    def begin(*arguments, **options):
        running.append(start(*arguments, **options))
        return running[-1]

    try:
        yield begin
    finally:
        for process in running:
            process.kill()
            process.wait(30)


@contextmanager
def suspended(process):
    """Suspend a process for the time of the block."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def lines(file):
    return file.read_text().splitlines() if file.exists() else []


def deliveries(files):
    """Return the deliveries of consumers, by time."""
    found = []
    for file in files:
        for line in lines(file):
            time_ns, queue, body = line.split()
            key, number = body.split(".")
            found.append(Delivery(int(time_ns), queue, key, int(number)))
    return sorted(found)


def consumed(files):
    """Return body → number of times that it was consumed."""
    return Counter(one.body for one in deliveries(files))


def wait_until_consumed(sent, files, seconds=300):
    """Wait until every acknowledged message was consumed, and print the counts."""
    wanted, end = {*lines(sent)}, time.monotonic() + seconds
    while missing := wanted - consumed(files).keys():
        assert time.monotonic() < end, f"{len(missing)} of {len(wanted)}: {sorted(missing)[:20]}"
        time.sleep(0.3)
    found = consumed(files)
    again = found.total() - len(found)
    sys.stdout.write(f"{len(wanted)} acknowledged, {len(found)} consumed, {again} again\n")


def wait_until_sent(sent, count, seconds=1200):
    """Wait until so many messages were acknowledged."""
    end = time.monotonic() + seconds
    while len(lines(sent)) < count:
        assert time.monotonic() < end, f"{len(lines(sent))} of {count}"
        time.sleep(0.05)


def wait_until_registered(server, *brokers):
    """Wait until a name server has these brokers in the route of the topic."""
    with closing(RouteLookup([server])) as lookup:
        wait_until(lambda: {one.name for one in lookup.route(TOPIC).brokers} == {*brokers})


def check_order(files, by):
    """Check that no message was consumed for the first time after a later one of its key or queue.

    by: The name of the field of `Delivery` in whose order messages were sent.
    """
    seen, newest = set(), {}
    for one in deliveries(files):
        name = getattr(one, by)
        assert one.body in seen or one.number > newest.get(name, -1), one
        seen.add(one.body)
        newest[name] = max(newest.get(name, -1), one.number)


def consume(endpoint, file, *, listener_s=0.0, **settings):
    """Consume until SIGTERM; the listener takes `listener_s` for a batch."""
    ended, output = _until_terminated(), _appended(file)

    def listen(messages):
        time.sleep(listener_s)
        now = time.monotonic_ns()
        text = "".join(f"{now} {one.queue_id} {one.body.decode()}\n" for one in messages)
        os.write(output, text.encode())
        return ConsumeResult.SUCCESS

    given = {"subscriptions": {TOPIC: "*"}, "listener": listen, **settings}
    with PushConsumer(GROUP, endpoint=endpoint, **given):
        Path(f"{file}.started").touch()
        ended.wait()


def produce(endpoint, file, *, keys=0, timeout_ms=20_000, **paced):
    """Send messages until SIGTERM; with `keys`, those of each in order, in a thread of its own."""
    names = [f"k{number}" for number in range(keys)] or [None]
    ended, output = _until_terminated(), _appended(file)
    with Producer(endpoint=endpoint, timeout_ms=timeout_ms) as producer:
        threads = [
            threading.Thread(target=_send, args=(producer, output, ended, name), kwargs=paced)
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _send(producer, output, ended, key, *, batch, pause_s=0.0):
    """Send the messages of a key in batches, each until it is acknowledged, with pauses."""
    start_at = 0
    while not ended.wait(pause_s):
        bodies = [f"{key}.{number}" for number in range(start_at, start_at + batch)]
        messages = [Message(topic=TOPIC, body=one.encode(), sharding_key=key) for one in bodies]
        if _sent(producer, messages):
            os.write(output, "".join(f"{body}\n" for body in bodies).encode())
            start_at += batch


def _until_terminated():
    """Return an event that SIGTERM sets."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    return ended


def _appended(file):
    return os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)


def _sent(producer, messages):
    """Send a batch; return whether it was acknowledged."""
    try:
        producer.send_batch(messages)
    except PyrocketError as error:
        sys.stderr.write(f"{error}\n")
        time.sleep(0.1)
        return False
    return True
