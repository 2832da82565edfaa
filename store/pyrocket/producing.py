"""The values that producers send to brokers."""

from dataclasses import dataclass, replace

from pyrocket.message import Message


@dataclass(frozen=True)
class OutgoingMessage:
    """A message as a producer sends it; all attempts to send it have the same id.

    Attributes:
        message: The message. Its queue id is ignored: the call names the queue.
        body: The body as it is stored, which may be compressed.
        unique_id: UNIQ_KEY, the message id.
        born_timestamp: When it was sent first, in epoch milliseconds.
        sys_flag: Whether and how `body` is compressed.
    """

    message: Message
    body: bytes
    unique_id: str
    born_timestamp: int
    sys_flag: int = 0

    def as_sent(self) -> "OutgoingMessage":
        """Return the message as a request carries it: with one body, and a list of keys."""
        keys = self.message.keys or ()
        listed = [keys] if isinstance(keys, str) else keys
        return replace(self, message=replace(self.message, body=b"", keys=listed))
