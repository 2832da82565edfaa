"""A reply that waits for the disk."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PendingReply:
    """`reply` makes the reply, without waiting, of what `result` returns."""

    result: "Future[Any]"
    reply: Callable[[Any], Any]
