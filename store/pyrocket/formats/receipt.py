"""Receipt handles, which consumers send to ack messages; signed with a key of the store.

A handle stays valid after a restart. It contains the queue, the offset, the attempt and the pop of
one delivery. Group and topic are signed, too, so it is valid only for them.
"""

import hmac
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

KEY_BYTES = 32
_VERSION = 1
_FIELDS = struct.Struct(">BBIqII")
_SIGNATURE_BYTES = 16
_ID_CHARACTERS = 24
"""The length of a `delivery_id`: the 18 bytes before the pop, in Base64."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery. source: 0 for the topic itself, otherwise the number of a retry topic."""

    source: int
    queue_id: int
    offset: int
    attempt: int
    pop: int


class Receipts:
    """Signs receipts, and checks signatures."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, group: str, topic: str, receipt: Receipt) -> str:
        """Return the handle of a receipt."""
        fields = (receipt.queue_id, receipt.offset, receipt.attempt, receipt.pop)
        data = _FIELDS.pack(_VERSION, receipt.source, *fields)
        return urlsafe_b64encode(data + self._signature(group, topic, data)).decode().rstrip("=")

    def parse(self, group: str, topic: str, handle: str) -> Receipt | None:
        """Return the receipt of a handle; None if it was not signed for this group and topic."""
        try:
            data = urlsafe_b64decode(handle.encode("ascii") + b"=" * (-len(handle) % 4))
        except ValueError:
            return None
        if len(data) != _FIELDS.size + _SIGNATURE_BYTES:
            return None
        data, signature = data[: _FIELDS.size], data[_FIELDS.size :]
        if not hmac.compare_digest(signature, self._signature(group, topic, data)):
            return None
        version, *fields = _FIELDS.unpack(data)
        return Receipt(*fields) if version == _VERSION else None

    def _signature(self, group: str, topic: str, data: bytes) -> bytes:
        names = b"".join(
            len(name).to_bytes(2, "big") + name for name in map(str.encode, (group, topic))
        )
        return hmac.digest(self._key, names + data, "sha256")[:_SIGNATURE_BYTES]


def delivery_id(handle: str) -> str:
    """Return the part of a handle with source, queue, offset and attempt, unchecked.

    Unlike the handle, it remains the same when the invisible time changes.
    """
    return handle[:_ID_CHARACTERS]


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def new_pop() -> int:
    """Return a random id for a delivery, not 0."""
    return secrets.randbelow(2**32 - 1) + 1
