"""Bodies → typed columns, and what becomes of those that cannot be decoded. Pure.

The fast way: each body is put between `{"v":` and `}` and a line feed, and Arrow reads all of them
as one text. Between two bodies that text has `}`, white space and `{`, and a string cannot reach
over the line feed; JSON allows these signs only between two values of the top level. So each body
begins and ends such values, whatever is in it, and as many rows as bodies mean one for each.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyrocket.errors import SchemaError
from pyspark.sql.types import StructType

from pyspark_pyrocket.json.bulk import Faults, NotSoundError, read_by_row, read_in_parts
from pyspark_pyrocket.json.nesting import first_too_deep
from pyspark_pyrocket.json.rows import read_rows
from pyspark_pyrocket.json.types import Reading, reading_of
from pyspark_pyrocket.options.payload import DROPMALFORMED, FAILFAST

PLACE = ("topic", "queueId", "queueOffset")
"""What the decoder wants of a scan beside the bodies: it names the bad ones."""

NULL_BODY = "nullBody"
"""What it wants too where an empty body may stand for none."""

_NO_TEXT = pa.scalar(None, pa.string())

_ROW = re.compile(r" in row ([0-9]+)")


@dataclass(frozen=True)
class BadRecord:
    """A message whose body could not be decoded: where it is, what it holds, and why."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    reason: str


OnBad = Callable[[list[BadRecord]], None]
"""Is given the bad records of a batch before its rows go on."""


@dataclass(frozen=True)
class Decoder:
    """Adds to a batch of a scan the columns that are made of its bodies.

    text: whether the body as a string is the first of them.
    fields: the fields of JSON bodies that come next, None if no JSON is read.
    struct: name → which of the fields it is, of the one struct column that holds them; None if each
    field is a column.
    corrupt: whether the last one holds the bodies that are bad.
    mode: PERMISSIVE, DROPMALFORMED or FAILFAST.
    nulls: whether bodies that stand for none are null, and no bad ones.
    """

    mode: str
    text: bool = False
    fields: StructType | None = None
    struct: Mapping[str, int] | None = None
    corrupt: bool = False
    nulls: bool = False

    @property
    def scanned(self) -> tuple[str, ...]:
        """The columns of a scan that it needs."""
        return ("body", *PLACE, NULL_BODY) if self.nulls else ("body", *PLACE)

    def widen(self, batch: pa.RecordBatch, on_bad: OnBad | None = None) -> pa.RecordBatch:
        """Return the batch, which has `scanned`, with the decoded columns after its own.

        Raises SchemaError (BODY_MALFORMED) under FAILFAST.
        """
        bodies = batch.column("body")
        is_null = batch.column(NULL_BODY) if self.nulls else None
        columns, faults = self._decoded(bodies, is_null)
        if faults and self.mode == FAILFAST:
            raise _malformed(_bad_record(batch, *min(faults.items())))
        if faults and on_bad is not None:
            on_bad([_bad_record(batch, row, faults[row]) for row in sorted(faults)])
        if self.corrupt:
            columns.append(_corrupt(bodies, faults))
        names = [*batch.schema.names, *(f"decoded {at}" for at in range(len(columns)))]
        wide = pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)
        if faults and self.mode == DROPMALFORMED:
            return wide.filter(pc.invert(_mask(len(bodies), faults)))
        return wide

    def _decoded(
        self, bodies: pa.BinaryArray, is_null: pa.BooleanArray | None
    ) -> tuple[list[pa.Array], Faults]:
        columns: list[pa.Array] = []
        faults: Faults = {}
        if is_null is not None and not is_null.true_count:
            is_null = None
        if self.text:
            text, faults = read_in_parts(bodies, _text, _text_rows)
            columns.append(text if is_null is None else pc.if_else(is_null, _NO_TEXT, text))
        if self.fields is not None:
            if is_null is not None:
                bodies = pc.if_else(is_null, b"{}", bodies)
            rows, wrong = self._rows(bodies, self.fields)
            # Where both are asked for: what is no UTF-8 is no JSON either.
            faults = wrong | faults
            columns += rows.flatten() if self.struct is None else [_some(rows, self.struct)]
        return columns, faults

    def _rows(self, bodies: pa.BinaryArray, fields: StructType) -> tuple[pa.StructArray, Faults]:
        reading = _reading_of(fields)
        if reading is None:
            return read_by_row(bodies, partial(read_rows, schema=fields))
        at_once = partial(_rows_at_once, reading=reading)
        return read_in_parts(bodies, at_once, partial(read_rows, schema=fields))


_reading_of = lru_cache(maxsize=16)(reading_of)


def _some(rows: pa.StructArray, names: Mapping[str, int]) -> pa.StructArray:
    """Return a struct of some fields; no row is null."""
    return pa.StructArray.from_arrays([rows.field(at) for at in names.values()], names=list(names))


def _rows_at_once(bodies: pa.BinaryArray, reading: Reading) -> pa.StructArray:
    """Return the rows if all are sound. Raises NotSoundError."""
    # Arrow's reader takes any depth.
    too_deep = first_too_deep(bodies)
    if too_deep is not None:
        raise NotSoundError(too_deep)
    try:
        # Arrow's reader takes any bytes for text.
        bodies.cast(pa.string())
        rows = _read_json(bodies, reading.read_as)
        if len(rows) != len(bodies) or rows.null_count:
            raise NotSoundError
        return rows if reading.finish is None else reading.finish(rows)
    except pa.ArrowException as error:
        # What Arrow says is a hint; whatever it is, the rows are the same.
        row = _ROW.search(str(error))
        raise NotSoundError(None if row is None else int(row[1])) from None


def _read_json(bodies: pa.BinaryArray, kind: pa.DataType) -> pa.StructArray:
    joined = pc.binary_join_element_wise(b'{"v":', bodies, b"}\n", b"")
    _, offsets, data = joined.buffers()
    text = data.slice(0, int(np.frombuffer(offsets, np.int32)[len(joined)]))
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([("v", kind)]), unexpected_field_behavior="ignore"
        ),
    )
    (rows,) = table.column("v").chunks
    return rows


def _text(bodies: pa.BinaryArray) -> pa.StringArray:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        raise NotSoundError from None


def _text_rows(bodies: list[bytes]) -> tuple[pa.StringArray, Faults]:
    rows = list(map(_text_row, bodies))
    faults = {row: fault for row, (_, fault) in enumerate(rows) if fault}
    return pa.array([text for text, _ in rows], pa.string()), faults


def _text_row(body: bytes) -> tuple[str | None, str]:
    try:
        return body.decode(), ""
    except UnicodeDecodeError as error:
        return None, f"it is not UTF-8: {error.reason} at byte {error.start}"


def _corrupt(bodies: pa.BinaryArray, faults: Faults) -> pa.StringArray:
    none = pa.nulls(len(bodies), pa.string())
    if not faults:
        return none
    shown = [bodies[row].as_py().decode(errors="replace") for row in sorted(faults)]
    return pc.replace_with_mask(none, _mask(len(bodies), faults), pa.array(shown, pa.string()))


def _mask(rows: int, faults: Faults) -> pa.BooleanArray:
    mask = np.zeros(rows, np.bool_)
    mask[list(faults)] = True
    return pa.array(mask)


def _bad_record(batch: pa.RecordBatch, row: int, reason: str) -> BadRecord:
    topic, queue_id, offset, body = (batch.column(name)[row].as_py() for name in (*PLACE, "body"))
    return BadRecord(topic, queue_id, offset, body, reason)


def _malformed(bad: BadRecord) -> SchemaError:
    return SchemaError(
        f"The body of {bad.topic!r} queue {bad.queue_id} offset {bad.queue_offset} cannot be "
        f"decoded: {bad.reason}.",
        remedy="With mode=PERMISSIVE what cannot be decoded is null, with mode=DROPMALFORMED its "
        "row is left out.",
        code="BODY_MALFORMED",
    )
