"""Reads the file `checkpoint`: the times up to which the log and its indexes are durable."""

from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.formats.checkpoint import Checkpoint, decode_checkpoint


def read_checkpoint(layout: Layout) -> Checkpoint:
    """Return the lower of each time in RocketMQ's file and in our copy; zeros if there is no file.

    When our lock refuses a Java broker, the broker has already rewritten RocketMQ's file, with the
    times of messages that it did not make durable. Our copy still holds the lower times.
    """
    shared = decode_checkpoint(read_or_none(layout.checkpoint, SMALL_FILE_BYTES) or b"")
    own = read_or_none(layout.own_checkpoint, SMALL_FILE_BYTES)
    return shared if own is None else shared.least(decode_checkpoint(own))
