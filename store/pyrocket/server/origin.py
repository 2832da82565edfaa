"""`Origin`: who makes a call, read before any thread works on it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Needed = tuple[str, str, str]
"""A right that a call needs: right, kind, and the name of the topic or group."""


class Origin(NamedTuple):
    """The address of a client, the metadata of its call, and its user.

    Read it in the event loop, before the handler of the call awaits anything: gRPC frees a call
    when its client gives up, and a thread that then asks for the peer ends the process.

    needed: The rights that the call has needed so far.
    user: Empty without credentials; None if the server has no users.
    """

    peer: str
    metadata: Sequence[tuple[str, str | bytes]]
    needed: set[Needed]
    user: str | None = None

    @classmethod
    def of(cls, context: Any) -> "Origin":
        """Return the origin of a call, without its user."""
        return cls(context.peer(), context.invocation_metadata() or (), set())

    @property
    def holders(self) -> tuple[str, ...]:
        """Who holds what the call holds: its connection, and its user."""
        return (self.peer,) if self.user is None else (self.peer, f"user {self.user}")
