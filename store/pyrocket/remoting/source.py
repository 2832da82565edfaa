"""Reads topics at one broker of a cluster, as `SourceCalls` promises it."""

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from pyrocket.base.clock import system_clock
from pyrocket.errors import TransportError
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.cluster import ATTEMPT_S
from pyrocket.remoting.connection import CONNECT_S
from pyrocket.remoting.lookups import locate, slices_at
from pyrocket.remoting.offsets import NO_LOOK
from pyrocket.remoting.pulls import PullSettings, out_of_range
from pyrocket.remoting.reads import read_anywhere, read_together
from pyrocket.remoting.samples import SampledOffsets
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import MessageQueue, QueueOffsets, QueueRange, SourceIdentity
from pyrocket.values.source import ReadPlan

IDLE_S = 0.1
"""The least time between two looks for new messages while a query is idle."""


class RocketMQSource(SampledOffsets):
    """Reads topics at one broker. Safe to share between threads."""

    @property
    def store_id(self) -> str:
        """The name of the cluster as the id of the store: a broker has no other one."""
        return f"rocketmq:{self.cluster.broker(self.broker, self.seconds).cluster}"

    def identities(self) -> dict[str, SourceIdentity]:
        """Return the id of the store."""
        return {self.broker: SourceIdentity(store=self.store_id, epoch=0)}

    def now_ms(self) -> int:
        """Return the time of this machine."""
        return system_clock()

    def is_recovering(self) -> bool:
        """Return False: a broker recovers its store before it serves clients."""
        return False

    def deliver_due(self) -> bool:
        """Return False: a broker delivers delayed messages itself."""
        return False

    def version(self) -> Hashable:
        """Return the ranges of the queues, which the next plan uses.

        While no plan uses them, the broker is asked ten times a second at most, so that this call
        pauses.
        """
        memory = self._memory
        time.sleep(max(memory.look[0] + IDLE_S - time.monotonic(), 0))
        look = self._bounds(memory.planned)
        memory.look = time.monotonic(), look
        return tuple((topic, *map(tuple, (has or {}).items())) for topic, has in look.items())

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return False immediately: `version` waits."""
        return False

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return nothing: a broker does not let former read queues be read."""
        return {}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return nothing: a broker does not say what it has lost; see `holds`."""
        return {}

    def plan(self, topics: Collection[str]) -> ReadPlan:
        """Return what a micro-batch needs: one flight, or none after `version`."""
        wanted, memory = dict.fromkeys((*self._read, *topics)), self._memory
        (looked_at, look), memory.look, memory.planned = memory.look, NO_LOOK, wanted
        configs, not_here = self._configs(wanted), {topic for topic in look if look[topic] is None}
        # A broker that registers again, which takes up to 30 s, is missing in new routes.
        is_whole = look.keys() >= wanted.keys() <= configs.keys() | not_here
        if time.monotonic() - looked_at > IDLE_S or not is_whole:
            look, configs = self._bounds(wanted), self._configs(wanted)
        pool = self.cluster.pool(self.broker, self.seconds)
        return ReadPlan(
            broker=self.broker,
            store=self.store_id,
            epoch=0,
            run=f"{pool.address} {pool.lost}",
            topics=[configs[topic] for topic in wanted if look[topic] is not None],
            bounds=self._by_queue({topic: look[topic] for topic in wanted}),
        )

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield raw records, range after range; resumes after a lost connection."""
        where, tally, bounds = where or EVERYTHING, tally or ScanTally(), {}
        with suppress(TransportError):  # A slave can be read without the master.
            soon = self.within(min(self.seconds, CONNECT_S))
            bounds = soon.queue_bounds([part.queue for part in ranges])
        for part in ranges:
            has = bounds.get(part.queue)
            # A pull after the end would wait for messages.
            if has and part.rows and not has.minimum <= part.start <= part.end <= has.maximum:
                wanted = f"[{part.start}, {part.end})"
                raise out_of_range(part.queue, has.minimum, has.maximum, wanted)
            pulls = self._pulls(where)
            yield from read_anywhere(self.cluster, part, pulls, self.seconds, where, tally)

    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice; None if they have to be read alone."""
        where = where or EVERYTHING
        ask, tally = partial(self._ask, reads=True), tally or ScanTally()
        return read_together(ranges, ask, self._pulls(where), where, tally)

    def _pulls(self, where: MessageFilter) -> PullSettings:
        """Return how messages are pulled: tags are also selected by the broker."""
        tags = " || ".join(sorted(where.tags)) if where.tags else "*"
        return PullSettings(self._group, tags, min(self.seconds, ATTEMPT_S))

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages that match; see `lookups.locate`."""
        return locate(self._ask, request)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at these locations as raw records."""
        queue = MessageQueue(locations.topic, self.broker, locations.queue_id)
        ask, tally = partial(self._ask, reads=True), tally or ScanTally()
        return slices_at(ask, queue, locations, self._group, where or EVERYTHING, tally)

    def close(self) -> None:
        """Do nothing: the connections belong to the cluster."""
