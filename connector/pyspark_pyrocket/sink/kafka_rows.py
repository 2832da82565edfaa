"""Rows that Kafka can store and RocketMQ cannot: null values, and keys that are not text.

Such a row is an error unless an option selects an encoding; `columns.kafka` decodes them. Pure, and
works on whole columns.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyrocket import KEY_ENCODING_PROPERTY, NULL_BODY_PROPERTY
from pyrocket.errors import MessageError

from pyspark_pyrocket.arrow_types import bytes_of, map_with_entry
from pyspark_pyrocket.json.base64_columns import encode_column

_Sent = dict[str, pa.Array]
"""Column name → values, the columns of an append."""

Rows = npt.NDArray[np.int64]
"""Indexes of rows in a batch."""

_SPACE = 0x20
_NOT_IN_KEYS = "[ \x01\x02]"
_AS_BASE64 = "Set keyEncoding=base64 to write keys of any bytes."
_WITHOUT_BODY = (
    "A message must have a body. nullBody=empty writes 0 bytes with the property "
    "pyrocketNull=body, which schemaMode=kafka reads as null again; nullBody=drop drops the row."
)


def rows_with_body(batch: pa.RecordBatch, at: int) -> Rows | None:
    """Return the rows whose body, the column at `at`, is not null; None if no body is null."""
    body = batch.column(at)
    if not body.null_count:
        return None
    return np.flatnonzero(body.is_valid().to_numpy(zero_copy_only=False))


def refuse_null_bodies(sent: _Sent) -> None:
    """Raise MessageError (BODY_NULL) for the first row without a body, if there is one."""
    body = sent["body"]
    if not body.null_count:
        return
    row = pc.index(body.is_null(), True).as_py()
    keys = sent.get("keys")
    key = None if keys is None else keys[row].as_py()
    with_key = f", with the key {key!r}," if key else ""
    raise MessageError(
        f"row {row}{with_key} has a null body.", remedy=_WITHOUT_BODY, code="BODY_NULL"
    )


def mark_null_bodies(sent: _Sent) -> None:
    """Replace null bodies with empty ones, and mark them by a property."""
    body = sent["body"]
    if body.null_count:
        _add_property(sent, body.is_null(), NULL_BODY_PROPERTY, "body")
        sent["body"] = body.fill_null(b"" if pa.types.is_binary(body.type) else "")


def encode_keys(sent: _Sent) -> None:
    """Encode binary keys as base64, and mark them by a property; null means no key."""
    keys = sent["keys"].cast(pa.binary())
    _add_property(sent, keys.is_valid(), KEY_ENCODING_PROPERTY, "base64")
    sent["keys"] = encode_column(keys)


def text_of_keys(keys: pa.BinaryArray | pa.StringArray) -> pa.StringArray:
    """Return keys as text, stored unchanged. Raises MessageError, which names the row."""
    try:
        text = keys.cast(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid:
        values = keys.cast(pa.binary()).to_pylist()
        row = next(at for at, key in enumerate(values) if not is_utf8(key))
        raise _not_a_key(row, values[row]) from None
    if bytes_of(text).min(initial=0xFF) <= _SPACE:
        illegal = pc.fill_null(pc.match_substring_regex(text, _NOT_IN_KEYS), False)
        row = pc.index(illegal, True).as_py()
        if row >= 0:
            raise _not_a_key(row, text[row].as_py())
    return text


def _not_a_key(row: int, key: object) -> MessageError:
    return MessageError(
        f"row {row} has {key!r} as its key, and RocketMQ's keys are UTF-8 text without spaces and "
        "without the characters \\x01 and \\x02.",
        remedy=_AS_BASE64,
    )


def is_utf8(value: bytes | None) -> bool:
    """Return whether bytes are valid UTF-8, or null."""
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _add_property(sent: _Sent, rows: pa.BooleanArray, name: str, value: str) -> None:
    properties = sent.get("properties")
    if properties is None:
        properties = pa.repeat(pa.scalar([], pa.map_(pa.string(), pa.string())), len(rows))
    flags = rows.to_numpy(zero_copy_only=False)
    sent["properties"] = map_with_entry(properties, flags, name, value)
