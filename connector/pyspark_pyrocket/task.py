"""What an executor does with its ranges: scan, re-wrap, hand to Spark."""

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.projection import Projection
from pyspark_pyrocket.ranges import QueuePartition
from pyspark_pyrocket.stores import store_of_driver

_frozen = False


def read_partition(
    partition: InputPartition, projection: Projection, *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the messages of the partition's ranges, in their order.

    A retry and a replay read the same offsets again.
    """
    freeze_imports()
    # Spark makes up a partition of its own when there are none.
    if not isinstance(partition, QueuePartition):
        return iter(())
    return projection.apply_all(_scan(partition, projection.scan, verify_crc))


def freeze_imports() -> None:
    """Take what is loaded out of the garbage collector's sight, once per worker process.

    Spark runs a full collection after every task; with pyarrow loaded it takes 40 ms.
    """
    global _frozen
    if not _frozen:
        gc.freeze()
        _frozen = True


def _scan(
    partition: QueuePartition, columns: tuple[str, ...], verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    store = store_of_driver(partition.path, partition.store)
    for each in partition.ranges:
        yield from store.scan(
            each.topic, each.queue_id, each.start, each.end, columns, verify_crc=verify_crc
        )
