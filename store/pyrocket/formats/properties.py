"""The properties block of a record, and the property names that RocketMQ reserves.

    name \\x01 value \\x02 name \\x01 value \\x02 …

UTF-8, in any order. Versions 4.9.1 to 5.1.4 omit the last \\x02, and all readers accept both. We
write the last \\x02. Reading follows `MessageDecoder.string2messageProperties` of 4.9.1 and later:
the text up to the next \\x02 is a property if it has at least one character before its first \\x01
and one after it. A value may contain \\x01. If a name is repeated, the last value is used.
"""

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from pyrocket.base.arguments import is_number
from pyrocket.errors import MessageError
from pyrocket.values.message import Message

NAME_END = 1
"""The byte between a name and its value."""

VALUE_END = 2
"""The byte between two properties."""

MAX_PROPERTIES_BYTES = 32767
"""The block has a signed 16-bit length."""

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
SHARDING_KEY = "__SHARDINGKEY"
TRACE_CONTEXT = "TRACE_CONTEXT"
WAIT = "WAIT"

REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
"""The destination of a message in a system topic: topic name, and queue id in decimal."""

DELAY = "DELAY"
"""Delay level in decimal."""

TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""Due time in epoch milliseconds, set by the sender."""

TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
"""Delay after the store time. RocketMQ's order of precedence is DELAY above 0, TIMER_DELAY_SEC,
TIMER_DELAY_MS, TIMER_DELIVER_MS."""

TIMER_OUT_MS = "TIMER_OUT_MS"
"""Due time in epoch milliseconds of a message in the timer topic, set by the broker."""

TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
"""On a message in the timer topic: cancels the message with this unique id."""

TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""On a message in a retry or dead-letter topic: its original topic, and the offset message id of
its first record."""

DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
"""On a dead letter, since RocketMQ 5: the topic and id that consumers see."""

TRAN_MSG = "TRAN_MSG"
"""`true` on a half message."""

PGROUP = "PGROUP"
"""The producer group that is asked about a half message."""

TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"

CRC32 = "__CRC32#"
"""Checksum of the whole record: see `record_crc`."""

NULL_BODY_PROPERTY = "pyrocketNull"
"""`body` on a message with an empty body that represents null, such as a Kafka tombstone."""

KEY_ENCODING_PROPERTY = "pyrocketKey"
"""`base64` on a message whose KEYS are one binary key in base64; without KEYS, the key is empty."""

RESERVED_PROPERTIES = frozenset(
    (
        *("KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG"),
        *("PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION"),
        *("TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES"),
        *("CONSUME_START_TIME", "INNER_NUM", "INNER_BASE", "DUP_INFO"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__"),
        *("TRANSACTION_CHECK_TIMES", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"),
        *("ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET"),
        *("1ST_POP_TIME", "__SHARDINGKEY", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT"),
        *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT"),
        *("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS"),
        *("TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"),
        *("TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP"),
        CRC32,
    )
)
"""Names used by brokers and clients (`MessageConst` of 5.x, a superset of 4.x's)."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode a block without checking names and values: see `find_illegal_property`."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def decode_properties(block: bytes) -> dict[str, str]:
    """Decode a block as name → value. Malformed UTF-8 becomes U+FFFD, as in Java."""
    properties: dict[str, str] = {}
    for entry in block.split(b"\x02"):
        name, separator, value = entry.partition(b"\x01")
        if name and separator and value:
            properties[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return properties


def find_illegal_property(properties: Mapping[str, str]) -> str | None:
    """Return why a user property cannot be stored and read back, or None."""
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES:
            return f"property name {name!r} is reserved by RocketMQ"
        if not name or not value:
            return f"property {name!r} has an empty name or value, which readers ignore"
        if {"\x01", "\x02"} & {*name, *value}:
            return f"property {name!r} contains \\x01 or \\x02, the separators of the format"
    return None


def check_message_kinds(message: Message) -> None:
    """Raise MessageError that names the first field of a wrong type. Called for each append."""
    if not isinstance(message, Message):
        _refuse("the message", message, "Append a pyrocket.Message(topic=…, body=…).")
    for name, text in (("tags", message.tags), ("sharding_key", message.sharding_key)):
        if text is not None and not isinstance(text, str):
            _refuse(name, text, "Use a string (str), or None.")
    if message.queue_id is not None and not is_number(message.queue_id):
        _refuse("queue_id", message.queue_id, "Use a whole number (int), or None.")
    if not is_number(message.flag):
        _refuse("flag", message.flag, "Use a whole number (int); 0 is the default.")
    if message.keys != () and not isinstance(message.keys, str):
        _check_keys(message.keys)
    if message.properties != {}:
        _check_properties(message.properties)


def _check_keys(keys: Any) -> None:
    # The type is compared first because isinstance with an abstract class takes a microsecond.
    if type(keys) is not list and (isinstance(keys, bytes) or not isinstance(keys, Collection)):
        _refuse("keys", keys, "Use a list of strings (str); () for none.")
    for key in keys:
        if not isinstance(key, str):
            _refuse("one of the keys", key, "Use texts (str).")


def _check_properties(properties: Any) -> None:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        _refuse("properties", properties, "Use a dict of strings (str); {} for none.")
    for name, value in properties.items():
        if not isinstance(name, str):
            _refuse("the name of a property", name, "Use a string (str).")
        if not isinstance(value, str):
            _refuse(f"property {name!r}", value, f"Use a string (str), such as {str(value)!r}.")


def _refuse(name: str, value: Any, remedy: str) -> NoReturn:
    raise MessageError(f"{name} is {value!r}, of type {type(value).__name__}.", remedy=remedy)
