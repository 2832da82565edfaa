"""One function for each parser: an input may raise only the documented errors. If there is a parser
for single values and one for columns, both must agree. `fuzz.run` passes a function to a fuzzer;
`test_corpus` repeats inputs that were once interesting.
"""

import json
from contextlib import suppress

import numpy as np
import pyarrow as pa
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.formats.arrow_buffers import to_text
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.compression import inflate
from pyrocket.formats.java_timers import (
    UNIT,
    UNIT_BYTES,
    chain,
    decode_timer_check,
    delivered_by,
    encode_timer_check,
    positions,
    slot_times,
)
from pyrocket.formats.message_keys import offset_message_id, parse_offset_message_id
from pyrocket.formats.properties import RESERVED_PROPERTIES, decode_properties
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import read_store_timestamp
from pyrocket.formats.record_columns import SCAN_COLUMNS
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.timer_entry import TIMER_ENTRY
from pyrocket.index.keys.key_items import key_items
from pyrocket.values.message import MessageQueue
from support.slices import decode_run

COLUMNS = [name for name in SCAN_COLUMNS if name not in ("bodyText", "bornTimestamp")]
_SAME = {
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeSize": "store_size",
    "body": "body",
    "tags": "tags",
    "msgId": "msg_id",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
"""Column → field of a message."""


def record(data):
    """Parse one record as a single value and in columns."""
    read_store_timestamp(data)
    with suppress(StoreDamagedError):
        decode_record(data)
    one = _decoded(data)
    if one is None or one.size != len(data) or not 0 < len(one.topic.encode()) < 128:
        return
    buffer = pa.py_buffer(data)
    fields = RecordFields(buffer, one.physical_offset, np.array([0]), np.array([len(data)]))
    queue = MessageQueue(one.topic, "broker", one.queue_id)
    message, batch = (
        _attempt(one.to_message),
        _attempt(decode_run, fields, queue, one.queue_offset, COLUMNS),
    )
    assert (message is None) == (batch is None), "only one of the two accepts it"
    if message is None:
        return
    batch.validate(full=True)
    row = {
        name: column[0].as_py()
        for name, column in zip(COLUMNS, batch.columns, strict=True)
        if name != "storeTimestamp"
    }
    for column, name in _SAME.items():
        assert row[column] == getattr(message, name), column
    assert tuple(row["keys"]) == message.keys
    assert dict(row["properties"] + row["systemProperties"]) == message.properties


def _decoded(data):
    return _attempt(lambda: decode_record(data, verify_crc=False))


def _attempt(ask, *arguments):
    with suppress(StoreDamagedError):
        return ask(*arguments)
    return None


def records(data):
    """Parse records at arbitrary positions: a count, (start, size) of 16 bits each, then the
    bytes."""
    count = data[0] % 8 + 1 if data else 0
    if len(data) < 2 + 4 * count or not count:
        return
    entries = np.frombuffer(data, ">i2", 2 * count, 1).astype(np.int64).reshape(-1, 2)
    rest = data[1 + 4 * count :]
    starts, sizes = entries[:, 0].copy(), entries[:, 1].copy()
    fields = RecordFields(pa.py_buffer(rest), 0, starts, sizes)
    ends = starts + sizes
    ordered = (starts[1:] >= ends[:-1]).all() and (starts >= 0).all() and (ends <= len(rest)).all()
    try:
        fields.check_structure()
    except StoreDamagedError:
        parts = zip(starts.tolist(), ends.tolist(), strict=True)
        assert not ordered or not all(_is_record(rest[low:high], low) for low, high in parts)
        return
    assert ordered, "records overlap"
    _compare_fields(fields, rest)


def _is_record(data, position):
    one = _decoded(data)
    return (
        one is not None
        and one.size == len(data)
        and one.physical_offset == position
        and bool(one.topic)
    )


def _compare_fields(fields, rest):
    bounds = zip(fields.starts.tolist(), fields.sizes.tolist(), strict=True)
    bodies, blocks = fields.bodies().to_pylist(), fields.properties.to_pylist()
    topics, times = fields.topics.to_pylist(), fields.store_timestamp.tolist()
    for at, (start, size) in enumerate(bounds):
        one = _decoded(rest[start : start + size])
        if one is None:
            # Only one of the two parsers decodes the topic.
            assert to_text(pa.array([topics[at]], pa.binary()))[0].as_py().encode() != topics[at]
            continue
        assert (one.body, one.properties) == (bodies[at], blocks[at])
        assert (one.topic.encode(), one.store_timestamp) == (topics[at], times[at])
    assert len(key_items(fields)) >= 0


def properties(data):
    """Parse blocks, separated by zeros, one by one and in columns."""
    blocks = data.split(b"\0")
    wanted = [decode_properties(block) for block in blocks]
    columns = PropertyColumns(pa.array(blocks, pa.binary()))
    names = {name for found in wanted for name in found}
    for name in ["TAGS", "KEYS", *sorted(names)[:4]]:
        assert columns.column(name).to_pylist() == [found.get(name) for found in wanted], name
    for reserved in (True, False):
        found = columns.as_map(reserved=reserved)
        found.validate(full=True)
        assert [dict(each) for each in found.to_pylist()] == [
            {name: each[name] for name in each if (name in RESERVED_PROPERTIES) is reserved}
            for each in wanted
        ]


def body(data):
    """Decode a stored body; its first two bytes are the sysFlag."""
    flags = int.from_bytes(data[:2], "big")
    with suppress(StoreDamagedError):
        inflate(data[2:], flags)


def checkpoint(data):
    """Parse the file `checkpoint`."""
    known = decode_checkpoint(data)
    assert known.safe_timestamp >= 0
    assert encode_checkpoint(known)[:24] == data[:24].ljust(24, b"\0")


def timer_check(data):
    """Parse the file `timercheck`, and determine the timers that it marks as delivered."""
    known = decode_timer_check(data)
    assert min(known.read_ms, known.log_position, known.queue_offset) >= 0
    again = decode_timer_check(encode_timer_check(known))
    assert (again.read_ms, again.queue_offset) == (known.read_ms, known.queue_offset)
    entries = np.zeros(2, TIMER_ENTRY)
    entries["queue_offset"], entries["due"] = [0, 2**62], [1, 2**62]
    assert delivered_by(known, entries)[0] == (known.queue_offset > 0 and known.read_ms > 1)


def timer_units(data):
    """Parse the units of a timer log, with their positions and their chain."""
    units = np.frombuffer(data, UNIT, len(data) // UNIT_BYTES).copy()
    places = positions(len(units), 4096)
    chain(units, places)
    assert (units["previous"] < places).all()
    assert np.isin(units["previous"], [-1, *places.tolist()]).all()
    times = slot_times(units)
    assert len(np.unique(times)) == np.count_nonzero(units["previous"] == -1)


def message_id(data):
    """Parse a broker's message id."""
    text = data.decode("utf-8", "replace")
    known = parse_offset_message_id(text)
    if known is not None:
        assert offset_message_id(*known) == text.upper()


def json_text(data):
    """Parse RocketMQ's JSON; a parsed value is written and must be parsed as the same value."""
    try:
        value = fastjson.loads(data.decode())
    except ValueError:
        return
    again = fastjson.loads(fastjson.dumps(value))
    assert json.dumps(again) == json.dumps(value)
