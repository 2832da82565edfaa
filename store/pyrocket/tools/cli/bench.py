"""`pyrocket bench`: measures the rates of sending and receiving messages."""

import os
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from pyrocket.errors import TopicNotFoundError
from pyrocket.tools.cli.frame import OK, exits_with_json, show_json
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.show import show_rows
from pyrocket.tools.session import Session, open_session
from pyrocket.values.message import Message

_MAX_CALLS = 100_000
_MAX_SENT_BYTES = 1 << 30


@click.command()
@place_options
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True)
@click.option("--body-bytes", type=click.IntRange(1, 1 << 20), default=1024, show_default=True)
@exits_with_json
def bench(place: GivenPlace, seconds: float, body_bytes: int, as_json: bool) -> int:
    """Send messages one by one to a temporary topic, read them back, and show the rates.

    The reference is a rate without messages: that of calls to the broker that do nothing, or that
    of writes of the same size to a file in the directory. The topic is deleted at the end; its
    messages stay in the log until their files are deleted.
    """
    target, topic = place.target(), f"pyrocket-bench-{uuid.uuid4().hex}"
    message = Message(topic=topic, body=b"x" * body_bytes)
    with open_session(target.place, write=True) as store:
        reference = _reference(store, message.body, seconds)
        try:
            most = min(_MAX_CALLS, _MAX_SENT_BYTES // body_bytes)
            sent = _rate(lambda: store.sink.send(message, create=True), seconds, most)
            received = _received(store, topic)
        finally:
            with suppress(TopicNotFoundError):
                store.admin.topics.delete(topic)
    rates = {"reference": reference, "send": sent, "receive": received}
    if as_json:
        rows = {name: {"perSecond": round(rate, 1)} for name, rate in rates.items()}
        show_json({"bodyBytes": body_bytes, **rows})
    else:
        mib = body_bytes / 2**20
        rows_shown = [
            (name, round(rate), f"{rate * mib:,.1f}", f"{rate / reference:.2f}")
            for name, rate in rates.items()
        ]
        show_rows(("what", "per second", "MiB/s", "of reference"), rows_shown)
    return OK


def _rate(once: Callable[[], object], seconds: float, most: int = _MAX_CALLS) -> float:
    """Call `once` repeatedly, at most `most` times; return the calls per second."""
    begin, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds and count < most:
        once()
        count += 1
    return count / max(passed, 1e-9)


def _reference(store: Session, body: bytes, seconds: float) -> float:
    """Return the number of calls to a broker, or of writes to a file, per second."""
    if not Path(store.name).is_dir():
        return _rate(store.source.identities, seconds)
    with tempfile.TemporaryFile(dir=store.name) as file:
        number = file.fileno()
        return _rate(lambda: os.pwrite(number, body, 0), seconds)


def _received(store: Session, topic: str) -> float:
    """Return the number of messages read per second."""
    begin = time.perf_counter()
    count = sum(len(part) for part in store.source.slices(store.ranges(topic)))
    return count / max(time.perf_counter() - begin, 1e-9)
