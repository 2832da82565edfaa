"""What an executor does with its ranges: scan, re-wrap, hand to Spark."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa
from pyrocket import ScanTally
from pyrocket.errors import PyrocketError
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.options.selection import EVERY_MESSAGE, Selection
from pyspark_pyrocket.source.bad_records import sender
from pyspark_pyrocket.source.ranges import QueuePartition, together
from pyspark_pyrocket.source.tolerant_scan import read_range
from pyspark_pyrocket.transport.path import store_of_driver
from pyspark_pyrocket.worker import LOG, freeze_imports, log_to_stderr

_FAIL = LossPolicy()


def read_partition(
    partition: InputPartition,
    projection: Projection,
    *,
    verify_crc: bool,
    selection: Selection = EVERY_MESSAGE,
    bad_topic: str = "",
    loss: LossPolicy = _FAIL,
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the messages of the partition's ranges that are wanted, in their order.

    A retry and a replay read the same offsets again, as far as `loss` lets them miss what is gone.
    """
    freeze_imports()
    # Spark makes up a partition of its own when there are none.
    if not isinstance(partition, QueuePartition):
        return iter(())
    batches = _scan(partition, projection.scan, verify_crc, selection, loss)
    return projection.apply_all(batches, sender(partition.path, partition.store, bad_topic))


def _scan(
    partition: QueuePartition,
    columns: tuple[str, ...],
    verify_crc: bool,
    selection: Selection,
    loss: LossPolicy,
) -> Iterator[pa.RecordBatch]:
    store = store_of_driver(partition.path, partition.store)
    tally = ScanTally()
    where = selection.where
    scan = partial(store.scan, verify_crc=verify_crc, where=where)
    for few in together(partition.ranges):
        places = [(each.queue_id, each.start, each.end) for each in few]
        batch = None
        # A damaged record is for the policy, which goes by the range it is in.
        with suppress(PyrocketError):
            counted = ScanTally()
            found = (
                store.raw.slice_of_ranges(few[0].topic, places, where=where, tally=counted)
                if len(few) > 1
                else None
            )
            if found is not None:
                batch = found.decode_in_order(columns, verify_crc=verify_crc)
            if batch is not None:
                tally.add(counted)
        if batch is not None:
            yield batch
            continue
        for each in few:
            of_queue = partial(scan, each.topic, each.queue_id)
            yield from read_range(store, each, columns, loss, of_queue, tally)
    if not selection.where.wants_all:
        _log_tally(partition, selection, tally)


def _log_tally(partition: QueuePartition, selection: Selection, tally: ScanTally) -> None:
    log_to_stderr()
    LOG.info(
        "%s chose %d of %d messages of %s: %d were passed over by the hash of their tags, %d when"
        " their properties had been read",
        selection.describe(),
        tally.messages,
        tally.entries,
        ", ".join(dict.fromkeys(f"{each.topic}/{each.queue_id}" for each in partition.ranges)),
        tally.entries - tally.records,
        tally.records - tally.messages,
    )
