"""The settings and the requests of the checks of half messages."""

from dataclasses import dataclass

from pyrocket.formats.record_decode import Record
from pyrocket.values.message import StoredMessage
from pyrocket.values.transactions import HalfMessageRef


@dataclass(frozen=True, kw_only=True)
class CheckPolicy:
    """Times and limits of the checks of half messages, with RocketMQ's settings and defaults.

    timeout_ms: minimum age of a message before its first check (transactionTimeOut).
    interval_ms: time between two checks of one message (transactionCheckInterval).
    max_checks: number of checks after which a message is discarded (transactionCheckMax).
    max_hours: age after which a message is discarded (fileReservedTime).
    max_messages, max_append_bytes: limits of a round and an append; other writers wait for it.
    max_backlog: number of messages by which other groups may hold the half cursor back.
    """

    timeout_ms: int = 6_000
    interval_ms: int = 60_000
    max_checks: int = 15
    max_hours: float = 72
    max_messages: int = 2000
    max_append_bytes: int = 8 * 1024 * 1024
    max_backlog: int = 16_384


@dataclass(frozen=True)
class CheckRequest:
    """A half message for a listener to execute or to check.

    message: the message with its real topic and queue.
    record: the half message as stored, if the caller has it.
    """

    half: HalfMessageRef
    message: StoredMessage
    record: Record | None = None
