"""`PendingReply`: a reply that depends on an append."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PendingReply:
    """`reply` creates the reply from the value of `result`, without blocking."""

    result: "Future[Any]"
    reply: Callable[[Any], Any]
