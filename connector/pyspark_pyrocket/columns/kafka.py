"""Kafka's columns as `schemaMode=kafka` reads them, with null values and keys of any bytes. Pure.

RocketMQ supports neither, so properties mark such messages: `pyrocketNull=body` with an empty body
is a null value; `pyrocketKey=base64` is a key encoded as base64, or an empty key if the message has
no keys. These properties are not shown as headers.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyrocket import KEY_ENCODING_PROPERTY, NULL_BODY_PROPERTY
from pyrocket.errors import SchemaError
from pyspark.sql.types import BinaryType, StringType

from pyspark_pyrocket.arrow_types import headers_of_map, map_entries_where
from pyspark_pyrocket.columns.messages import COLUMNS, HEADERS, Variant
from pyspark_pyrocket.json.base64_columns import decode_column

_MARKS = [KEY_ENCODING_PROPERTY, NULL_BODY_PROPERTY]


def _value(body: pa.Array, is_null: pa.BooleanArray, wanted: pa.DataType) -> pa.Array:
    """Return the bodies; bodies marked as null become null."""
    if not is_null.true_count:
        return body
    return pc.if_else(is_null, pa.scalar(None, wanted), body)


def _key(keys: pa.StringArray, encoding: pa.StringArray, wanted: pa.DataType) -> pa.Array:
    """Return the keys; keys marked as base64 are decoded."""
    is_encoded = pc.fill_null(pc.equal(encoding, "base64"), False)
    if not is_encoded.true_count:
        return keys.view(wanted)
    decoded = _decoded(keys.filter(is_encoded).fill_null(""))
    plain = pc.replace_with_mask(keys.cast(pa.binary()), is_encoded, decoded)
    try:
        return plain.cast(wanted)
    except pa.ArrowInvalid:
        raise SchemaError(
            "A key that was written with keyEncoding=base64 is not UTF-8.",
            remedy="Read the column 'key' as BINARY.",
            code="KEY_NOT_UTF8",
        ) from None


def _decoded(keys: pa.StringArray) -> pa.BinaryArray:
    """Return the decoded keys; a key that is not valid base64 is returned unchanged."""
    try:
        return decode_column(keys)
    except pa.ArrowInvalid:
        if len(keys) == 1:
            return keys.cast(pa.binary())
        return pa.concat_arrays([_decoded(keys.slice(at, 1)) for at in range(len(keys))])


def _headers(properties: pa.MapArray, wanted: pa.ListType) -> pa.ListArray:
    """Return the properties as headers, without those that mark null values and Base64 keys."""
    is_mark = pc.is_in(properties.keys, pa.array(_MARKS))
    if is_mark.true_count:
        kept = ~is_mark.to_numpy(zero_copy_only=False)
        properties = map_entries_where(properties, kept)
    return headers_of_map(properties, wanted)


KAFKA_COLUMNS: dict[str, tuple[Variant, ...]] = {
    **COLUMNS,
    "key": (
        Variant(BinaryType(), "keysText", _key, "keyEncoding"),
        Variant(StringType(), "keysText", _key, "keyEncoding"),
    ),
    "value": (
        Variant(BinaryType(), "body", _value, "nullBody"),
        Variant(StringType(), "bodyText", _value, "nullBody"),
    ),
    "headers": (Variant(HEADERS, "properties", _headers),),
}
"""Every column of a read with `schemaMode=kafka`."""
