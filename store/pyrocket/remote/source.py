# mypy: disable-error-code="empty-body"
"""`RemoteSource`: reads a store through its broker, as `broker.source.StoreSource` does locally."""

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.errors import TransportError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice, empty_slice
from pyrocket.remote.client import Client, remote
from pyrocket.remote.version_watch import VersionWatch
from pyrocket.values.admin import TopicConfig
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import MessageQueue, QueueRange, SourceIdentity
from pyrocket.values.source import BrokerCalls, Hello, Part, RunningState, TablePart
from pyrocket.wire.blocks import blocks_in
from pyrocket.wire.messages import value_of

_NO_END = 2**63 - 1


class RemoteSource:
    """Reads a store through its broker. Safe to share between threads."""

    def __init__(self, client: Client, watch: VersionWatch | None = None) -> None:
        self.client, self.watch = client, watch or VersionWatch(client)

    @cached_property
    def hello(self) -> Hello:
        """The broker's reply to the first call. Raises UnsupportedError."""
        hello = self._say_hello()
        self._asked_at = time.monotonic()
        return hello

    @remote("Status")
    def status(self) -> RunningState:
        """Return the broker's current state."""

    def greet(self) -> None:
        """Repeat the first call, and replace `hello`."""
        self.__dict__.pop("hello", None)
        _ = self.hello

    def _say_hello(self) -> Hello:
        return value_of(self.client.call("Hello", release=RELEASE, protocol=PROTOCOL), Hello)

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

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        topics = value_of(self.client.call("Topics"), list[TopicConfig])
        return {topic.name: topic for topic in topics}

    topic = remote("Topic")(BrokerCalls.topic)
    plan = remote("Plan")(BrokerCalls.plan)
    bounds = remote("Bounds")(BrokerCalls.bounds)
    queue_bounds = remote("QueueBounds")(BrokerCalls.queue_bounds)
    retired = remote("Retired")(BrokerCalls.retired)
    offsets_at = remote("OffsetsAt")(BrokerCalls.offsets_at)
    truncations = remote("Truncations")(BrokerCalls.truncations)
    mark = remote("Mark")(BrokerCalls.mark)
    holds = remote("Holds")(BrokerCalls.holds)
    sizes = remote("Sizes")(BrokerCalls.sizes)
    split_at_bytes = remote("SplitAtBytes")(BrokerCalls.split_at_bytes)
    committed = remote("Committed")(BrokerCalls.committed)
    commit = remote("Commit")(BrokerCalls.commit)
    locate = remote("Locate")(BrokerCalls.locate)
    plan_view = remote("PlanView")(BrokerCalls.plan_view)

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
                left = [part for part in left[done:] if part.rows]
                passed = sum(part.rows for part in ranges) - sum(part.rows for part in left)
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
                joined = next((part for _, part in blocks), None)
                break
            except TransportError as error:
                if not error.repeat_is_safe or not pauses.wait():
                    raise
        (tally or ScanTally()).add(counted)
        if joined is None and counted.entries:
            return empty_slice(ranges[0].queue)
        return joined

    def _blocks(
        self, call: str, asked: Sequence[QueueRange], tally: ScanTally, **arguments: Any
    ) -> Iterator[tuple[int, RecordSlice]]:
        replies = self.client.stream(call, **arguments)
        queues = [part.queue for part in asked]
        return blocks_in(replies, queues, self.hello.log_file_bytes, tally)

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
            replies = self.client.stream(
                "ReadView", part=part, columns=columns, topics=topics, verify_crc=verify_crc
            )
            batches = (batch for reply in replies for batch in pa.ipc.open_stream(reply))
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

    def deliver_due(self) -> bool:
        """Return False: the broker delivers due messages."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self.watch.close()
        self.client.close()
