"""Decodes bodies into typed columns, and handles bodies that cannot be decoded. Pure.

The fast path puts each body between `{"v":` and `}` and a line feed, and lets Arrow read all of
them as one text. Between two bodies the text then has `}`, white space and `{`. A string cannot
span the line feed, so JSON allows these characters only between two top-level values. A value
therefore starts and ends with each body, whatever the body contains. If there are as many rows as
bodies, each row is one body.
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

from pyspark_pyrocket.json.bulk import BadRowError, Faults, read_by_row, read_in_parts
from pyspark_pyrocket.json.nesting import first_too_deep
from pyspark_pyrocket.json.rows import read_rows
from pyspark_pyrocket.json.types import Reading, reading_of
from pyspark_pyrocket.options.payload import DROPMALFORMED, FAILFAST

PLACE = ("topic", "queueId", "queueOffset")
"""The scan columns that the decoder needs besides the body, to name bad records."""

NULL_BODY = "nullBody"
"""The scan column that the decoder also needs if an empty body may mean null."""

_ROW = re.compile(r" in row ([0-9]+)")


@dataclass(frozen=True)
class BadRecord:
    """A message whose body could not be decoded: its position, its body, and the reason."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    reason: str


OnBad = Callable[[list[BadRecord]], None]
"""Called with the bad records of a batch before its rows are passed on."""


@dataclass(frozen=True)
class Decoder:
    """Adds the columns that are decoded from bodies to a batch of a scan.

    text: whether the first of them is the body as a string.
    fields: the fields of JSON bodies, which are the next columns; None if no JSON is decoded.
    struct: name → index of the field, for the struct column that holds the fields; None if each
    field is a column.
    corrupt: whether the last column holds the bad bodies.
    mode: PERMISSIVE, DROPMALFORMED or FAILFAST.
    nulls: whether bodies that are marked as null are null instead of bad.
    """

    mode: str
    text: bool = False
    fields: StructType | None = None
    struct: Mapping[str, int] | None = None
    corrupt: bool = False
    nulls: bool = False

    @property
    def scanned(self) -> tuple[str, ...]:
        """The scan columns that the decoder needs."""
        return ("body", *PLACE, NULL_BODY) if self.nulls else ("body", *PLACE)

    def widen(self, batch: pa.RecordBatch, on_bad: OnBad | None = None) -> pa.RecordBatch:
        """Return the batch, which has the columns `scanned`, with the decoded columns appended.

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
            if is_null is not None:
                text = pc.if_else(is_null, pa.scalar(None, pa.string()), text)
            columns.append(text)
        if self.fields is not None:
            if is_null is not None:
                bodies = pc.if_else(is_null, b"{}", bodies)
            rows, wrong = self._rows(bodies, self.fields)
            # A body that is not UTF-8 is not JSON either: the first reason is kept.
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
    """Return a struct of some of the fields; no row is null."""
    return pa.StructArray.from_arrays([rows.field(at) for at in names.values()], names=list(names))


def _rows_at_once(bodies: pa.BinaryArray, reading: Reading) -> pa.StructArray:
    """Return the rows if all bodies are valid. Raises BadRowError."""
    # Arrow's reader accepts any depth.
    too_deep = first_too_deep(bodies)
    if too_deep is not None:
        raise BadRowError(too_deep)
    try:
        # Arrow's reader accepts strings that are not UTF-8.
        bodies.cast(pa.string())
        rows = _read_json(bodies, reading.read_as)
        if len(rows) != len(bodies) or rows.null_count:
            raise BadRowError
        return rows if reading.finish is None else reading.finish(rows)
    except pa.ArrowException as error:
        # Arrow's message is only a hint at the bad row: the result does not depend on it.
        row = _ROW.search(str(error))
        raise BadRowError(None if row is None else int(row[1])) from None


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
        raise BadRowError from None


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
        remedy="With mode=PERMISSIVE, values that cannot be decoded are null; with "
        "mode=DROPMALFORMED, their rows are dropped.",
        code="BODY_MALFORMED",
    )
