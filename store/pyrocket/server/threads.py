"""The threads that run the work of calls.

Each kind of work has its own threads, so that one kind does not wait for another. For example,
while a receive scans many messages of a queue, the acks of its group wait, but sends do not.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

from pyrocket.base.loop_threads import LoopThreads

_THREADS = 8

_Value = TypeVar("_Value")


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


class Threads:
    """A thread pool for each kind of work. Used by one event loop."""

    def __init__(self, read_threads: int) -> None:
        counts = dict.fromkeys(Work, _THREADS) | {Work.READ: read_threads, Work.SEND: 1}
        self._pools = {
            kind: LoopThreads(count, f"pyrocket-{kind.value}") for kind, count in counts.items()
        }

    def run(self, work: Callable[[], _Value], kind: Work) -> Awaitable[_Value]:
        """Run work in a thread for its kind; see `LoopThreads.run`."""
        return self._pools[kind].run(work)

    def shutdown(self) -> None:
        """Wait until all work is done."""
        for pool in self._pools.values():
            pool.shutdown()
