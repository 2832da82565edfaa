"""Hypothesis strategies for data on disk and messages, and a second encoder of records.

`raw_record` follows the byte table of `store/pyrocket/formats/record.py` field by field. It can
encode records that the product never writes (v2, unusual flags, malformed properties).
"""

import zlib
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

MAGIC = {1: 0xDAA320A7, 2: 0xDAA320AB}
CODECS = {0x001: "zlib", 0x301: "zlib", 0x101: "lz4", 0x201: "zstd"}
"""sysFlag of a compressed body → its codec."""

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-(2**53), 2**53)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"))
"""Any Unicode that can be stored, including astral characters."""

WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02 "), min_size=1, max_size=8
)
"""Valid keys."""

HOSTS = st.tuples(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), INT32
)


def _word(value, width):
    return value.to_bytes(width, "big", signed=True)


def raw_record(
    *,
    topic=b"T",
    queue_id=0,
    flag=0,
    queue_offset=0,
    physical_offset=0,
    sys_flag=0,
    born_timestamp=0,
    born_host=(b"\x7f\0\0\1", 1),
    store_timestamp=0,
    store_host=(b"\x7f\0\0\1", 1),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"",
    properties=b"",
    version=1,
):
    """Encode one record; the lengths of the hosts set the sysFlag bits."""
    sys_flag |= 0x10 * (len(born_host[0]) == 16) | 0x20 * (len(store_host[0]) == 16)
    rest = b"".join(
        [
            MAGIC[version].to_bytes(4, "big"),
            _word(zlib.crc32(body) & 0x7FFFFFFF, 4),
            _word(queue_id, 4),
            _word(flag, 4),
            _word(queue_offset, 8),
            _word(physical_offset, 8),
            _word(sys_flag, 4),
            _word(born_timestamp, 8),
            born_host[0] + _word(born_host[1], 4),
            _word(store_timestamp, 8),
            store_host[0] + _word(store_host[1], 4),
            _word(reconsume_times, 4),
            _word(prepared_transaction_offset, 8),
            _word(len(body), 4) + body,
            len(topic).to_bytes(version, "big") + topic,
            _word(len(properties), 2) + properties,
        ]
    )
    return _word(4 + len(rest), 4) + rest


def body_start(record):
    """Return the position of the body in a record."""
    return 88 + 12 * (record[39] >> 4 & 1) + 12 * (record[39] >> 5 & 1)


def compress(body, sys_flag):
    """Return the body as a client with this sysFlag stores it."""
    if CODECS[sys_flag] == "zlib":
        return zlib.compress(body, 5)
    return pa.Codec(CODECS[sys_flag]).compress(body, asbytes=True)


PLAIN_BODIES = st.one_of(
    st.binary(max_size=40),
    TEXT.map(str.encode),
    st.integers(1, 3000).map(lambda length: b"pyrocket " * length),
)


@st.composite
def stored_bodies(draw):
    """Draw (body as stored, sysFlag): uncompressed, or compressed with any codec."""
    plain = draw(PLAIN_BODIES)
    sys_flag = draw(st.sampled_from([0, 0, *CODECS]))
    return (compress(plain, sys_flag) if sys_flag else plain), sys_flag


_NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"a", "é中".encode(), b"\xff"])
_VALUES = st.one_of(
    st.sampled_from([b"TagA", b"ORDER1 K2", b" ", b"x\x01y", b"\xff\xfe", b"a\tb  c "]),
    TEXT.map(str.encode).filter(bool),
)


@st.composite
def well_formed_blocks(draw):
    """Draw properties as RocketMQ's brokers of all versions write them, with or without the last
    separator.
    """
    entries = draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=5))
    closed = b"".join(name + b"\x01" + value + b"\x02" for name, value in entries)
    return closed if draw(st.booleans()) else closed[:-1]


PIECES = [
    b"\x01",
    b"\x02",
    b"TAGS",
    b"KEYS",
    b"a",
    b" ",
    b"\xff",
    b"\xfe",
    "中".encode(),
    b"\xf0\x9f",
]
MALFORMED_BLOCKS = st.lists(st.sampled_from(PIECES), max_size=16).map(b"".join)
BLOCKS = st.one_of(well_formed_blocks(), MALFORMED_BLOCKS, st.just(b""))
BLOCK_COLUMNS = st.one_of(
    st.lists(BLOCKS, max_size=8),
    # One producer always sends the same names in the same order.
    st.lists(
        st.tuples(WORDS, WORDS).map(
            lambda pair: f"UNIQ_KEY\x01{pair[0]}\x02TAGS\x01{pair[1]}\x02".encode()
        ),
        max_size=6,
    ),
)


@dataclass(frozen=True)
class Slice:
    """Draw consecutive records of one queue in a buffer, with other bytes between them."""

    data: bytes
    base: int
    starts: list[int]
    records: list[bytes]
    topic: str
    queue_id: int
    first_offset: int

    @property
    def sizes(self):
        return [len(record) for record in self.records]


@st.composite
def _records(draw, topic, queue_id):
    body, compressed = draw(stored_bodies())
    return {
        "topic": topic.encode(),
        "queue_id": queue_id,
        "body": body,
        "sys_flag": compressed | draw(st.sampled_from([0, 0x2, 0x8])),
        "properties": draw(BLOCKS),
        "version": draw(st.sampled_from([1, 1, 2])),
        "born_host": draw(HOSTS),
        "store_host": draw(HOSTS),
        "born_timestamp": draw(TIMES),
        "store_timestamp": draw(TIMES),
        "flag": draw(INT32),
        "reconsume_times": draw(INT32),
        "prepared_transaction_offset": draw(INT64),
    }


@st.composite
def slices(draw, min_size=1, max_size=5):
    """Draw any mix of records that a queue may contain, in a part of a log."""
    topic = draw(st.sampled_from(["T", "TopicTest", "%RETRY%group", "t" * 127]))
    queue_id, first = draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 2**62))
    base = draw(st.integers(0, 2**62))
    data, starts, records = b"", [], []
    for number in range(draw(st.integers(min_size, max_size))):
        data += draw(st.sampled_from([b"", b"", b"\xda\xa3\x20\xa7", bytes(9), b"\xff" * 200]))
        fields = draw(_records(topic, queue_id))
        record = raw_record(**fields, queue_offset=first + number, physical_offset=base + len(data))
        starts.append(len(data))
        records.append(record)
        data += record
    data += draw(st.sampled_from([b"", bytes(3)]))
    return Slice(data, base, starts, records, topic, queue_id, first)


@st.composite
def sent_rows(draw, min_size=0, max_size=6):
    """Draw rows that can be sent, as dictionaries of append columns."""
    row = st.fixed_dictionaries(
        {
            "body": st.one_of(
                st.binary(max_size=30), st.integers(4090, 4100).map(lambda length: b"b" * length)
            ),
            "tags": st.one_of(st.none(), st.just(""), TEXT),
            "keys": st.one_of(st.none(), st.lists(WORDS, max_size=3)),
            "properties": st.one_of(
                st.none(),
                st.dictionaries(WORDS.map(lambda name: f"u{name}"), TEXT.filter(bool), max_size=3),
            ),
            "shardingKey": st.one_of(st.none(), st.just(""), TEXT),
            "flag": st.one_of(st.none(), INT32),
        }
    )
    return draw(st.lists(row, min_size=min_size, max_size=max_size))


SENT_SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("shardingKey", pa.string()),
        ("flag", pa.int32()),
    ]
)


def sent_batch(rows, *, before=0, after=0):
    """Return the rows as a batch sliced out of a longer one."""
    other = {
        "body": b"other",
        "tags": "other",
        "keys": ["other", "keys"],
        "properties": {"other": "property"},
        "shardingKey": "other",
        "flag": 1,
    }
    padded = [other] * before + rows + [other] * after
    columns = [
        pa.array(
            [
                list(row[f.name].items()) if isinstance(row[f.name], dict) else row[f.name]
                for row in padded
            ],
            f.type,
        )
        for f in SENT_SCHEMA
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SENT_SCHEMA)
    return batch.slice(before, len(rows))
