"""Gathers the fields of many records from raw log bytes, and checks them.

Data from disk is not trusted. Before a length is used as a position, `check_structure` verifies for
all records at once that the lengths in each record add up. (Arrow aborts the process if offsets
decrease; numpy wraps negative offsets.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.errors import PLACEHOLDER, RESTORE_DAMAGED, VERIFY_FIRST, RecordDamagedError
from pyrocket.formats.arrow_buffers import Bools, Ints, begin_with, binary_runs, gather, part_of
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import (
    FIXED_BYTES,
    HEADER,
    HEADER_BYTES,
    HOST_V6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    SYS_BORN_HOST_V6,
    SYS_DAMAGED,
    SYS_PREPARED,
    SYS_ROLLBACK,
    SYS_STORE_HOST_V6,
    SYS_TRANSACTION_MASK,
    offset_of,
)

OPEN_END = 2**63 - 1
"""The end of a range to which records are still appended."""


@dataclass(frozen=True)
class SealedRanges:
    """Half-open ranges of log offsets, ascending; `file_bytes` is the size of the log files.

    A record in one of the ranges is corrupt if it has room for a checksum, but no checksum.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    file_bytes: int = 0

    def cover(self, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Return a mask: whether each log offset is in a range."""
        covered = np.zeros(len(offsets), bool)
        for start, end in self.ranges:
            covered |= (offsets >= start) & (offsets < end)
        return covered

    @property
    def is_open(self) -> bool:
        """Whether the next append writes checksums."""
        return bool(self.ranges) and self.ranges[-1][1] == OPEN_END

    def at(self, log_end: int, *, sealing: bool) -> "SealedRanges":
        """Return the ranges for a log that ends at `log_end`; `sealing` opens a range there."""
        kept = [(start, min(end, log_end)) for start, end in self.ranges if start < log_end]
        if sealing and kept and kept[-1][1] == log_end:
            kept[-1] = (kept[-1][0], OPEN_END)
        elif sealing:
            kept.append((log_end, OPEN_END))
        return SealedRanges(tuple(kept), self.file_bytes)


NOT_SEALED = SealedRanges()

Sealed = Callable[[], SealedRanges]
"""Returns the current ranges."""


def not_sealed() -> SealedRanges:
    """Return no ranges: no record is required to have a checksum."""
    return NOT_SEALED


_SUM = "its lengths do not add up to its size"
_RESTORE = "Restore the log file from a backup; the messages before this record can be read."


def _field(name: str) -> cached_property[Ints]:
    return cached_property(lambda run: run.field(name))


class RecordFields:
    """Records that begin at the ascending positions `starts` in `buffer`.

    `base` is the log offset of the buffer. If the records were copied into the buffer, it is an
    array: log offset minus position in the buffer, for each record. `sizes` are from an index or a
    walk of the log. All arrays have one element per record. `sealed` returns the ranges in which
    records must have a checksum of the whole record.
    """

    def __init__(
        self,
        buffer: pa.Buffer,
        base: int | Ints,
        starts: Ints,
        sizes: Ints,
        sealed: Sealed = not_sealed,
    ) -> None:
        self.buffer, self.base, self.starts, self.sizes = buffer, base, starts, sizes
        self.sealed = sealed
        self.data = np.frombuffer(buffer, np.uint8)

    def head(self, count: int) -> "RecordFields":
        """Return the first `count` records."""
        return self if count == len(self) else self.part(slice(count))

    def part(self, rows: slice | Bools | Ints) -> "RecordFields":
        """Return the records in these rows, in the same buffer."""
        base = self.base if isinstance(self.base, int) else self.base[rows]
        return RecordFields(self.buffer, base, self.starts[rows], self.sizes[rows], self.sealed)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def _headers(self) -> npt.NDArray[np.void]:
        """All headers, gathered in one pass, because each pass causes cache misses."""
        raw = gather(self.data, self.starts, f"V{HEADER_BYTES}")
        return raw.view(HEADER)

    def field(self, name: str, after: int | Ints = 0) -> Ints:
        """Return a field of each header; `after` is its shift due to IPv6 hosts, in bytes."""
        column = self._headers[name]
        if not isinstance(after, int):
            column = gather(self.data, self.starts + offset_of(name) + after, column.dtype.str)
        return column.astype(column.dtype.newbyteorder("="))

    @cached_property
    def physical_offset(self) -> Ints:
        """The positions in the log."""
        return self.starts + self.base

    magic = _field("magic")
    queue_id = _field("queue_id")
    queue_offset = _field("queue_offset")
    sys_flag = _field("sys_flag")

    @cached_property
    def after_born_host(self) -> int | Ints:
        """The shift of fields after bornHost due to IPv6, in bytes."""
        return self._extra(SYS_BORN_HOST_V6)

    @cached_property
    def after_hosts(self) -> int | Ints:
        """The shift of fields after both hosts due to IPv6, in bytes."""
        return self.after_born_host + self._extra(SYS_STORE_HOST_V6)

    def has_store_host(self, host: bytes) -> Bools:
        """Return whether the store host of each record is this IPv4 host (8 bytes)."""
        wanted = np.frombuffer(host, "S8")[0]
        at_host = self.starts + offset_of("store_host") + self.after_born_host
        return np.equal(gather(self.data, at_host, "S8"), wanted)

    def _extra(self, bit: int) -> int | Ints:
        has_bit = self.sys_flag & bit
        return (has_bit != 0) * np.int64(HOST_V6_EXTRA) if has_bit.any() else 0

    @cached_property
    def store_timestamp(self) -> Ints:
        """The store times in epoch milliseconds."""
        return self.field("store_timestamp", self.after_born_host)

    @cached_property
    def body_start(self) -> Ints:
        """The start positions of the bodies in the buffer."""
        return self.starts + (HEADER_BYTES + self.after_hosts)

    @cached_property
    def body_length(self) -> Ints:
        """The lengths of the stored bodies."""
        return self.field("body_length", self.after_hosts)

    @cached_property
    def _topic_prefix(self) -> int | Ints:
        """The size of the topic's length field: 1, or 2 in v2."""
        is_v2 = self.magic == MAGIC_V2
        return 1 + is_v2.astype(np.int64) if is_v2.any() else 1

    @cached_property
    def topic_start(self) -> Ints:
        """The start positions of the topics in the buffer."""
        return self.body_start + self.body_length + self._topic_prefix

    @cached_property
    def topic_length(self) -> int | Ints:
        """The lengths of the topics."""
        at = self.topic_start - 1
        length = self.data[at].astype(np.int64)
        if not isinstance(self._topic_prefix, int):
            high = self.data[at - 1].view(np.int8).astype(np.int64) << 8
            length += np.where(self._topic_prefix == 2, high, 0)
        return length

    @cached_property
    def properties_start(self) -> Ints:
        """The start positions of the properties in the buffer."""
        return self.topic_start + self.topic_length + 2

    @cached_property
    def properties_length(self) -> Ints:
        """The lengths of the properties."""
        return gather(self.data, self.properties_start - 2, ">i2").astype(np.int64)

    @cached_property
    def topics(self) -> pa.BinaryArray:
        return binary_runs(self.buffer, self.topic_start, self.topic_start + self.topic_length)

    @cached_property
    def properties(self) -> pa.BinaryArray:
        """The properties blocks."""
        start = self.properties_start
        return binary_runs(self.buffer, start, start + self.properties_length)

    @cached_property
    def property_columns(self) -> PropertyColumns:
        return PropertyColumns(self.properties)

    @cached_property
    def by_queue(self) -> list[tuple[tuple[str, int], Ints]]:
        """Each queue with entries for records of the run, and the rows of these records.

        The structure must have been checked before.
        """
        kind = self.sys_flag & SYS_TRANSACTION_MASK
        chosen = np.flatnonzero((kind != SYS_PREPARED) & (kind != SYS_ROLLBACK))
        topics = self.topics.take(pa.array(chosen)).dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = topics.indices.to_numpy().astype(np.int64)
        queue_ids = self.queue_id[chosen].astype(np.int64)
        group = codes << 32 | queue_ids
        order = np.argsort(group, kind="stable")
        cuts = np.flatnonzero(np.diff(group[order])) + 1
        return [
            ((names[codes[rows[0]]].decode(), int(queue_ids[rows[0]])), chosen[rows])
            for rows in np.split(order, cuts)
            if len(rows)
        ]

    def bodies(self) -> pa.BinaryArray:
        """Return the stored bodies."""
        return binary_runs(self.buffer, self.body_start, self.body_start + self.body_length)

    def check_structure(self) -> None:
        """Check that each record is complete, is at its physical offset, and has valid lengths."""
        room = self._room
        self.demand((self.topic_length > 0) & (self.topic_length <= room), "its topic does not fit")
        self.demand(self.properties_length == room - self.topic_length, _SUM)

    def has_structure(self) -> bool:
        """Whether `check_structure` raises no error."""
        try:
            self.check_structure()
        except RecordDamagedError:
            return False
        return True

    def check_places(self, topic: str, queue_id: int | Ints, queue_offsets: Ints) -> None:
        """Check the structure, and that the records are at these offsets of this queue."""
        room = self._room
        self._demand_of_index(self.queue_id == queue_id, f"it is not of queue {queue_id}")
        placed = self.queue_offset == queue_offsets
        self._demand_of_index(placed, "its queue offset differs from the index")
        self._check_tail(topic.encode(), room)
        self.demand(self.sys_flag & SYS_DAMAGED == 0, PLACEHOLDER, RESTORE_DAMAGED)

    @cached_property
    def _room(self) -> Ints:
        """The room for topic and properties, in bytes. Checks what is before it."""
        demand = self._demand_of_index
        demand(self.sizes >= FIXED_BYTES, "the index gives it an impossible size")
        # A sum could wrap around; this difference cannot.
        inside = (self.starts >= 0) & (self.starts <= len(self.data) - self.sizes)
        demand(inside, "it extends beyond the file")
        apart = self.starts[1:] >= self.starts[:-1] + self.sizes[:-1]
        demand(np.append(apart, True), "it overlaps the next record")
        demand(self.field("size") == self.sizes, "its size differs from the index")
        known = self.magic == MAGIC_V1
        if not known.all():
            known |= self.magic == MAGIC_V2
        demand(known, "no record starts here (magic)")
        placed = self.field("physical_offset") == self.physical_offset
        demand(placed, "it has another physical offset")
        room = self.sizes - FIXED_BYTES - self.after_hosts - self._topic_prefix + 1
        self.demand(room >= 0, "its header does not fit")
        length = self.body_length
        self.demand((length >= 0) & (length <= room), "its body does not fit")
        return room - length

    def _check_tail(self, name: bytes, room: Ints) -> None:
        """Check that each body is followed by this topic and by properties that end the record.

        Gathers the topic, its length and the length of the properties in one pass.
        """
        foreign = f"it is not of topic {name.decode()!r}"
        self._demand_of_index(room >= len(name), foreign)
        prefix = len(name).to_bytes(1, "big")
        if not isinstance(self._topic_prefix, int):
            self._demand_of_index(np.equal(self.topic_length, len(name)), foreign)
            prefix = b""
        first = self.topic_start - len(prefix)
        before = prefix + name
        tails = gather(self.data, first, f"V{len(before) + 2}")
        self._demand_of_index(begin_with(tails, before), foreign)
        self.topic_length = len(name)
        self.properties_length = part_of(tails, len(before), ">i2").astype(np.int64)
        self.demand(self.properties_length == room - len(name), _SUM)

    def _demand_of_index(self, holds: Bools, reason: str) -> None:
        """Check a condition that can also fail because the index entry is corrupt."""
        self.demand(holds, reason, VERIFY_FIRST)

    def demand(self, holds: Bools, reason: str, remedy: str = _RESTORE) -> None:
        """Raise RecordDamagedError for the first record for which `holds` is false."""
        if holds.all():
            return
        first = int(np.argmin(holds))
        raise RecordDamagedError(
            f"corrupt record at log offset {self.physical_offset[first]}: {reason}.", remedy=remedy
        )
