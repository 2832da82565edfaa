"""The kinds of work of calls, and what answers the calls of each kind."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

Answers = Mapping[str, Callable[..., Any]]
"""The functions that answer calls, by the names of the calls; their arguments are named like the
fields of the requests.
"""


class Work(Enum):
    """The kind of work of a call.

    READ: Reads.
    SEND: Encodes the messages of a request. One thread is faster than several, because switching
        between threads takes longer than encoding a message.
    WRITE: May wait for the write lock or the disk.
    RECEIVE: Delivers messages to a group.
    CHANGE: Changes the state of a group or a client; may wait for a receive of the group.
    """

    READ = "read"
    SEND = "send"
    WRITE = "write"
    RECEIVE = "receive"
    CHANGE = "change"
