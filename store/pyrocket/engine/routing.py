"""Which queue each message of a batch goes to.

A queue id given with the row wins; then the sharding key, by RocketMQ's hash selector; the rest is
spread evenly over the write queues. Rows without a queue come in runs, one a queue, so that the
messages of one queue lie together in the log and are read back in one sweep.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.errors import MessageError
from pyrocket.formats.hashes import queues_for_keys
from pyrocket.formats.send_columns import SendColumns

QueueIds = npt.NDArray[np.int32]


def route(columns: SendColumns, topic: str, queues: int, first_queue: int) -> QueueIds:
    """Return the queue id of each row. Raises MessageError for an id the topic does not have."""
    count = len(columns)
    chosen = np.full(count, -1, np.int32)
    if columns.sharding_key is not None:
        has_key = columns.sharding_key.is_valid().to_numpy(zero_copy_only=False)
        chosen[has_key] = queues_for_keys(columns.sharding_key, queues)[has_key]
    if columns.queue_id is not None:
        given = columns.queue_id.is_valid().to_numpy(zero_copy_only=False)
        ids = pc.fill_null(columns.queue_id, 0).to_numpy()
        _check_ids(ids, topic, queues)
        chosen[given] = ids[given]
    free = np.flatnonzero(chosen < 0)
    if len(free):
        turn = np.arange(len(free), dtype=np.int64) * min(queues, len(free)) // len(free)
        chosen[free] = (first_queue + turn) % queues
    return chosen


def order_by_queue(queue_ids: QueueIds) -> pa.Array | None:
    """Return the order that brings the rows of one queue together; None if they are already."""
    runs = np.count_nonzero(np.diff(queue_ids)) + 1
    if runs <= len(np.unique(queue_ids)):
        return None
    return pa.array(np.argsort(queue_ids, kind="stable"))


def _check_ids(ids: npt.NDArray[np.int64], topic: str, queues: int) -> None:
    bad = (ids < 0) | (ids >= queues)
    if bad.any():
        row = int(np.argmax(bad))
        raise MessageError(
            f"row {row} wants queue {ids[row]}; topic {topic!r} has the write queues 0 to"
            f" {queues - 1}.",
            remedy="Use one of these, or null to have a queue chosen.",
            code="QUEUE_NOT_FOUND",
        )
