"""`Origin`: who makes a call, read before any thread works on it."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """The address of a client, and the metadata of its call.

    Read it in the event loop, before the handler of the call awaits anything: gRPC frees a call
    when its client gives up, and a thread that then asks for the peer ends the process.
    """

    peer: str
    metadata: Sequence[tuple[str, str | bytes]]

    @classmethod
    def of(cls, context: Any) -> "Origin":
        """Return the origin of a call."""
        return cls(context.peer(), context.invocation_metadata() or ())
