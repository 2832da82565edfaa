"""`Store.lookup`: messages by key or id, one or many at once."""

from pyrocket.arguments import check_numbers, check_text
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.key_lookup import KeyLookup, LookupRequest, LookupResult
from pyrocket.message import StoredMessage


@translating_methods
class Lookup:
    """Finds messages in one store. Never locks, never writes. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._keys = KeyLookup(engine.layout, engine.reader)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        max_messages: int = 64,
    ) -> list[StoredMessage]:
        """Return the newest messages with a key or unique id, oldest first.

        Only messages stored in [begin_ms, end_ms] count, in epoch milliseconds. Messages of deleted
        topics and of RocketMQ's system topics are found as long as the log has them.

            store.lookup.query("orders", "order-17")
        """
        check_text(topic=topic, key=key)
        check_numbers(begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages)
        return self._keys.query(topic, key, begin_ms, end_ms, max_messages)

    def by_id(self, topic: str, msg_id: str) -> StoredMessage:
        """Return the topic's message with this unique or offset id. Raises MessageNotFoundError."""
        check_text(topic=topic, msg_id=msg_id)
        return self._keys.by_id(topic, msg_id)

    def by_offset_id(self, offset_msg_id: str) -> StoredMessage:
        """Return the message with an offset id: host, port and log offset in hexadecimal digits.

        Raises MessageIdError, MessageNotFoundError.
        """
        check_text(offset_msg_id=offset_msg_id)
        return self._keys.by_offset_id(offset_msg_id)

    def locate(self, wanted: LookupRequest) -> LookupResult:
        """Return where the messages with any of many keys or ids are.

        `Store.raw.slices_at` reads them. Only messages that can be read from their topics now are
        found, all in one pass over the key index. Raises StoreDamagedError.
        """
        return self._keys.locate(wanted)
