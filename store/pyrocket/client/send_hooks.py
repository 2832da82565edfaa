"""Functions of the application that a producer calls before and after each send.

Source: `SendMessageHook`, `SendMessageContext`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyrocket.values.message import Message, SendResult


@dataclass
class SendContext:
    """One send.

    Attributes:
        group: The producer group.
        messages: One message, or those of a batch.
        mode: "SYNC", "ASYNC", "ONEWAY" or "TRANSACTION".
        results: The results; empty before the send, after an error, and for a half message.
        error: The error of the send, or None.
        notes: For the hook: the same object before and after the send.
    """

    group: str
    messages: Sequence[Message]
    mode: str
    results: Sequence[SendResult] = ()
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)


class SendHook:
    """Override one or both methods. An exception that they raise is logged, and the send continues.

    `after_send` must not block: for asynchronous sends the event loop calls it.
    """

    def before_send(self, context: SendContext) -> None:
        """Called by the thread that sends, after the messages were checked."""

    def after_send(self, context: SendContext) -> None:
        """Called when the send has succeeded or failed."""
