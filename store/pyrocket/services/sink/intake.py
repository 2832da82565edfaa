"""`Sink.intake`: takes in records that clients of a broker have encoded."""

from collections.abc import Mapping, Sequence

from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.received import ReceivedRecords, RecordCheck
from pyrocket.engine.sender import Sender
from pyrocket.message import AppendResult


@translating_methods
class Intake:
    """Checks encoded records and appends them. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._sender, self._check = Sender(engine), RecordCheck(engine.config, engine.clock)

    def check(self, routes: Mapping[str, int], runs: Sequence[bytes]) -> ReceivedRecords:
        """Return runs of records, each of one topic, if they may be appended.

        `routes` has the topics that they were sent to, with the write queues that the sender knows.
        Raises MessageError, TopicNameError.
        """
        return self._check.check(routes, runs)

    def append(self, requests: Sequence[ReceivedRecords]) -> list[AppendResult | Exception]:
        """Append the records of several requests together, each request whole or not at all.

        They share one exclusive section and one flush. Returns the result or error of each.
        """
        return self._sender.append_received(requests)
