"""The file `checkpoint`: the store times up to which log, queues and index were durable.

    offset  size  field
    0       8     physicMsgTimestamp   store time of the last log record that is durable, ms
    8       8     logicsMsgTimestamp   the same for the queues
    16      8     indexMsgTimestamp    the same for full index files

4096 bytes, the rest zero (5.x keeps two more offsets there). Source: `StoreCheckpoint`.
"""

import struct
from dataclasses import dataclass

CHECKPOINT_BYTES = 4096
_TIMES = struct.Struct(">3q")
_CLOCK_SLACK_MS = 3000


@dataclass(frozen=True)
class Checkpoint:
    """Store times in epoch milliseconds; 0 without durable data."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0

    def least(self, other: "Checkpoint") -> "Checkpoint":
        """Return the minimum of each time, which both checkpoints guarantee."""
        return Checkpoint(*map(min, vars(self).values(), vars(other).values()))

    @property
    def safe_timestamp(self) -> int:
        """The store time up to which log and queues are durable."""
        return max(0, min(self.log_timestamp, self.queue_timestamp) - _CLOCK_SLACK_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return _TIMES.pack(*vars(checkpoint).values()).ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode the content of the file; missing bytes are read as zeros."""
    return Checkpoint(*_TIMES.unpack_from(data.ljust(_TIMES.size, b"\0")))
