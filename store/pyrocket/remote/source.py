"""`RemoteSource`: reads a store through its broker, as `broker.source.StoreSource` does locally."""

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import pyarrow as pa

from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.errors import TransportError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice, empty_slice
from pyrocket.remote.client import Client
from pyrocket.remote.version_watch import VersionWatch
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import (
    ByteSpan,
    LogMark,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
)
from pyrocket.values.source import Part, ReadPlan, RunningState, TablePart
from pyrocket.values.topics import TopicConfig
from pyrocket.wire.blocks import blocks_in
from pyrocket.wire.messages import values_of

if TYPE_CHECKING:
    from pyrocket.wire.proto.pyrocket_pb2 import HelloReply

_NO_END = 2**63 - 1

_Offsets = dict[MessageQueue, int]
_Bounds = dict[MessageQueue, QueueOffsets]


class RemoteSource:
    """Reads a store through its broker. Safe to share between threads."""

    def __init__(self, client: Client, watch: VersionWatch | None = None) -> None:
        self.client, self.watch = client, watch or VersionWatch(client)

    def _value(self, call: str, kind: Any, **arguments: Any) -> Any:
        return values_of(self.client.call(call, **arguments), {"value": kind})["value"]

    @cached_property
    def hello(self) -> "HelloReply":
        """The broker's reply to the first call. Raises UnsupportedError."""
        hello = self._say_hello()
        self._asked_at = time.monotonic()
        return hello

    def status(self) -> RunningState:
        """Return the broker's current state."""
        reply = self.client.call("Status")
        return RunningState(**values_of(reply, get_type_hints(RunningState)))

    def greet(self) -> None:
        """Repeat the first call, and replace `hello`."""
        self.__dict__.pop("hello", None)
        _ = self.hello

    def _say_hello(self) -> "HelloReply":
        return self.client.call("Hello", release=RELEASE, protocol=PROTOCOL)

    @property
    def store_id(self) -> str:
        """The uuid of the store; empty if only RocketMQ has written to it."""
        return self.hello.store

    def identities(self) -> dict[str, SourceIdentity]:
        """Return the uuid and epoch of the store by broker name."""
        now = self._say_hello()
        return {now.broker: SourceIdentity(store=now.store, epoch=now.epoch)}

    def now_ms(self) -> int:
        """Return the broker's time, extrapolated from its first reply."""
        return self.hello.now_ms + int(1000 * (time.monotonic() - self._asked_at))

    def version(self) -> Hashable:
        """Return a value that changes whenever the store changes. Does not call the broker."""
        return self.watch.version()

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Wait until the version differs from `version`; return False if `seconds` pass first."""
        return self.watch.wait(version, seconds)

    def is_recovering(self) -> bool:
        """Return False: a broker recovers its store before it serves clients."""
        return False

    def plan(self, topics: Collection[str]) -> ReadPlan:
        """Return what the planning of a micro-batch reads, with the bounds of these topics."""
        reply = self.client.call("Plan", topics=list(topics))
        return ReadPlan(**values_of(reply, get_type_hints(ReadPlan)))

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        return {topic.name: topic for topic in self._value("Topics", list[TopicConfig])}

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which suggests the nearest name."""
        return self._value("Topic", TopicConfig, name=name)

    def bounds(self, topics: Collection[str]) -> _Bounds:
        """Return the minimum and maximum offset of each read queue of the topics."""
        return self._value("Bounds", _Bounds, topics=list(topics))

    def queue_bounds(self, queues: Collection[MessageQueue]) -> _Bounds:
        """Return the minimum and maximum offset of each of these queues."""
        return self._value("QueueBounds", _Bounds, queues=list(queues))

    def retired(self, topics: Collection[str]) -> _Bounds:
        """Return former read queues that still have messages."""
        return self._value("Retired", _Bounds, topics=list(topics))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> _Offsets:
        """Return for each queue the offset of the first message stored at or after a time."""
        return self._value("OffsetsAt", _Offsets, times_ms=times_ms)

    def truncations(self, epochs: Mapping[str, int], queues: Collection[MessageQueue]) -> _Offsets:
        """Return the new end offset of each queue that a recovery after these epochs truncated."""
        return self._value("Truncations", _Offsets, epochs=epochs, queues=list(queues))

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets."""
        return self._value("Mark", LogMark | None, offsets=offsets)

    def holds(self, mark: LogMark) -> bool | None:
        """Whether the log has the marked message."""
        return self._value("Holds", bool | None, mark=mark)

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return the location of each range in the log, and its approximate size in bytes."""
        return self._value("Sizes", list[ByteSpan], ranges=ranges)

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return the highest offset within each size limit; see `RawReads.cut_by_bytes`."""
        return self._value("SplitAtBytes", list[list[tuple[int, int]]], splits=splits)

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield raw records, range after range; resumes after a lost connection."""
        tally, left, pauses = tally or ScanTally(), list(ranges), self.client.pauses()
        first = tally.entries
        while left:
            done = 0
            try:
                for done, part in self._blocks("Slices", left, tally, where=where, ranges=left):
                    yield part
                    left[done] = replace(left[done], start=part.next_offset)
                    pauses = self.client.pauses()
                return
            except TransportError as error:
                if not error.repeat_is_safe or not pauses.wait():
                    raise
                left = [each for each in left[done:] if each.rows]
                passed = sum(each.rows for each in ranges) - sum(each.rows for each in left)
                tally.entries = first + passed

    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice; None if their total size is too large."""
        pauses = self.client.pauses()
        while True:
            counted = ScanTally()
            try:
                blocks = self._blocks("JoinedSlice", ranges, counted, where=where, ranges=ranges)
                found = next((part for _, part in blocks), None)
                break
            except TransportError as error:
                if not error.repeat_is_safe or not pauses.wait():
                    raise
        (tally or ScanTally()).add(counted)
        if found is None and counted.entries:
            return empty_slice(ranges[0].queue)
        return found

    def _blocks(
        self, call: str, asked: Sequence[QueueRange], tally: ScanTally, **arguments: Any
    ) -> Iterator[tuple[int, RecordSlice]]:
        replies = self.client.stream(call, **arguments)
        queues = [each.queue for each in asked]
        return blocks_in(replies, queues, self.hello.log_file_bytes, tally)

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages with the requested keys or ids."""
        return self._value("Locate", LookupResult, request=request)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the raw records at these locations; resumes after a lost connection."""
        queue = MessageQueue(locations.topic, self.hello.broker, locations.queue_id)
        everywhere = [QueueRange(queue, 0, _NO_END)]
        left, pauses, tally = locations, self.client.pauses(), tally or ScanTally()
        first = tally.entries
        while True:
            try:
                for _, part in self._blocks(
                    "SlicesAt", everywhere, tally, locations=left, where=where
                ):
                    yield part
                    left = left.within(part.next_offset, _NO_END)
                    pauses = self.client.pauses()
                return
            except TransportError as error:  # noqa: PERF203 - the loop is for the errors
                if not error.repeat_is_safe or not pauses.wait():
                    raise
                tally.entries = first + len(locations) - len(left)

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view."""
        return self._value(
            "PlanView",
            list[Part],
            view=view,
            topics=topics,
            group=group,
            skips_damage=skips_damage,
        )

    def read_view(
        self, part: Part, columns: Sequence[str], *, topics: Sequence[str] = (), verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; resumes after a lost connection.

        A part of the log always has the same rows, so a repeated call skips the rows already
        yielded. The rows of a table may change, so they are yielded only after all were received.
        """
        yielded, pauses = 0, self.client.pauses()
        while True:
            passed = yielded
            batches = self._view_batches(part, columns, topics, verify_crc)
            try:
                for batch in [*batches] if isinstance(part, TablePart) else batches:
                    new = batch.slice(min(passed, batch.num_rows))
                    passed -= batch.num_rows - new.num_rows
                    if new.num_rows:
                        yield new
                    yielded += new.num_rows
                    pauses = self.client.pauses()
                return
            except TransportError as error:
                if not error.repeat_is_safe or not pauses.wait():
                    raise

    def _view_batches(
        self, part: Part, columns: Sequence[str], topics: Sequence[str], verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        for reply in self.client.stream(
            "ReadView", part=part, columns=columns, topics=topics, verify_crc=verify_crc
        ):
            yield from pa.ipc.open_stream(reply)

    def committed(self, group: str, topics: Collection[str] | None = None) -> _Offsets:
        """Return the offsets that a group has committed, in these topics or in all."""
        return self._value("Committed", _Offsets, group=group, topics=topics)

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> _Offsets:
        """Commit durably, and return the group's offsets in these topics."""
        return self._value("Commit", _Offsets, group=group, offsets=offsets, backwards=backwards)

    def deliver_due(self) -> bool:
        """Return False: the broker delivers due messages."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self.watch.close()
        self.client.close()
