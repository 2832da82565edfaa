"""Messages that wait in one of RocketMQ's own topics as columns: those of a scan, and when due.

Topic and queue are those that they are for; their queue offset is where they wait.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import TIMER_OUT_MS
from pyrocket.formats.property_columns import PropertyColumns, numbers, real_places
from pyrocket.formats.record_columns import SCAN_COLUMNS, QueueRun, build_columns
from pyrocket.formats.record_fields import RecordFields

DUE = "dueTimestamp"
PENDING_COLUMNS: dict[str, pa.DataType] = {**SCAN_COLUMNS, DUE: pa.timestamp("us", "UTC")}
"""Every column that a scan of pending messages can give, with its Arrow type."""

_MS = "^[0-9]{1,15}$"


def rows_for(run: RecordFields, topics: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return which messages of a checked run are for the topics; all if none is named."""
    places = real_places(PropertyColumns(run.properties()))
    wanted = [code for code, name in enumerate(places.names) if not topics or name in topics]
    return np.flatnonzero(np.isin(places.codes, wanted) & (places.queue_ids >= 0))


def parked_columns(
    run: RecordFields,
    tags_codes: Ints,
    where: QueueRun,
    columns: Sequence[str],
    *,
    verify_crc: bool = False,
) -> pa.RecordBatch:
    """Return the columns of checked records that wait in the queue `where`.

    Those of a delay level are due at the time that is their tags code. Where bodies inflate to a
    lot, the batch holds the first records only. Raises StoreDamagedError, SchemaError.
    """
    plain = [name for name in columns if name in SCAN_COLUMNS]
    batch = build_columns(run, where, plain or ["queueOffset"], verify_crc=verify_crc)
    properties = PropertyColumns(run.head(batch.num_rows).properties())
    places = real_places(properties)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "topic" in columns:
        arrays["topic"] = pa.array(places.names, pa.string()).take(pa.array(places.codes))
    if "queueId" in columns:
        arrays["queueId"] = pa.array(places.queue_ids.astype(np.int32))
    if DUE in columns:
        arrays[DUE] = _due(properties, tags_codes[: batch.num_rows])
    schema = pa.schema([(name, PENDING_COLUMNS[name]) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def _due(properties: PropertyColumns, tags_codes: Ints) -> pa.TimestampArray:
    own = properties.column(TIMER_OUT_MS)
    due = np.where(pc.is_valid(own).to_numpy(zero_copy_only=False), numbers(own, _MS), tags_codes)
    return pa.array(due * 1000).view(PENDING_COLUMNS[DUE])
