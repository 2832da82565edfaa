"""Copies stored records as new records, to deliver, commit or re-append messages.

Body, flag, born time, both hosts and reconsumeTimes are copied. Topic, queue, offsets, store time
and the changes requested by the caller are new. Source: `ScheduleMessageService.messageTimeup`,
`EndTransactionProcessor.endMessageTransaction`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints, binary_runs, run_offsets
from pyrocket.formats.hashes import tags_hashes
from pyrocket.formats.message_keys import keys_of_batch
from pyrocket.formats.properties import KEYS, UNIQ_KEY
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import MAGIC_V1, SYS_BORN_HOST_V6, SYS_TRANSACTION_MASK
from pyrocket.formats.record_batch import EncodedBatch, fixed_width
from pyrocket.formats.record_crc import without_crc
from pyrocket.formats.record_fields import RecordFields


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes in the copies. Arrays have one element per copy; None changes nothing.

    transaction: the transaction bits of sysFlag, 0 or SYS_COMMIT, per copy or for all copies.
    prepared: preparedTransactionOffset.
    properties: encoded blocks.
    forget: set flag and reconsumeTimes to 0, as RocketMQ does when it re-appends half messages.
    """

    transaction: int | Ints = 0
    prepared: Ints | None = None
    properties: pa.BinaryArray | None = None
    forget: bool = False


def copy_records(
    run: RecordFields,
    rows: Ints,
    topic: str,
    queue_ids: npt.NDArray[np.int32],
    changes: Changes | None = None,
) -> EncodedBatch:
    """Copy the records `rows` (ascending) of a checked run to new records of one topic.

    `queue_ids` has one element per row; rows of one queue should be adjacent.
    """
    changes = changes or Changes()
    name = topic.encode()
    chosen = RecordFields(run.buffer, run.base, run.starts[rows], run.sizes[rows])
    properties = chosen.properties if changes.properties is None else changes.properties
    properties = without_crc(properties)
    heads = binary_runs(chosen.buffer, chosen.starts, chosen.body_start)
    lengths = pc.binary_length(properties).to_numpy().astype(">u2")
    joined = pc.binary_join_element_wise(
        heads,
        chosen.bodies(),
        pa.scalar(bytes((len(name),)) + name, pa.binary()),
        fixed_width(lengths.view(np.uint8), 2),
        properties,
        pa.scalar(b"", pa.binary()),
    )
    columns = PropertyColumns(properties)
    copies = EncodedBatch(
        topic,
        joined.buffers()[2],
        run_offsets(joined).astype(np.int64),
        queue_ids,
        tags_hashes(columns),
        keys_of_batch(topic, columns.column(UNIQ_KEY), columns.column(KEYS)),
        born_v6=bool((chosen.sys_flag & SYS_BORN_HOST_V6).any()),
    )
    _change_headers(copies, chosen, changes)
    return copies


def _change_headers(copies: EncodedBatch, originals: RecordFields, changes: Changes) -> None:
    every, starts = copies.headers(), copies.bounds[:-1]
    every["size"][starts] = copies.sizes
    every["magic"][starts] = MAGIC_V1
    every["queue_id"][starts] = copies.queue_ids
    every["sys_flag"][starts] = originals.sys_flag & ~SYS_TRANSACTION_MASK | changes.transaction
    after_hosts = starts + originals.after_hosts
    every["prepared_transaction_offset"][after_hosts] = (
        0 if changes.prepared is None else changes.prepared
    )
    if changes.forget:
        every["flag"][starts] = 0
        every["reconsume_times"][after_hosts] = 0
