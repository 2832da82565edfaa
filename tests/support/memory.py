"""A transport in memory. Calls of its brokers can be late, fail, or lose their replies.

`MemoryBroker` contains the state of a broker, `MemoryTarget` its name. `MemorySource` and
`MemorySink` call the broker through `MemoryBroker.call`, as over a network. Records are encoded and
decoded like those of a store. Views are not supported.
"""

import inspect
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import accumulate, count

import numpy as np
import pyarrow as pa
from pyrocket import (
    AppendResult,
    ByteSpan,
    LogMark,
    LookupResult,
    MessageFilter,
    MessageLocations,
    MessageQueue,
    Published,
    QueueOffsets,
    ReadPlan,
    RecordSlice,
    ScanTally,
    SourceIdentity,
    Staged,
    StoreConfig,
    TopicConfig,
)
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder
from pyrocket.errors import (
    OffsetOutOfRangeError,
    StoreNotFoundError,
    StoreNotSharedError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.content_sum import content_sum
from pyrocket.formats.record import HEADER_BYTES
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.index.queues.scanner import matching
from pyspark_pyrocket.transport.interface import Capability

from support.offsets import BROKER, at
from support.stores import FakeClock

SLICE_ROWS = 3
"""Messages per slice, so few that the reads of tests return several slices."""

JOINED_ROWS = 16
"""The maximum number of messages in a slice of several ranges."""

DEADLINE = 30.0
"""Seconds per call, unless `within` sets another deadline."""

_brokers = {}
"""The brokers of this process by name; a pickled target finds its broker in it."""

_LOCAL = {"within", "version", "now_ms", "close", "deliver_due"}
"""Calls that cost no round trip."""


@dataclass
class Record:
    """A stored message."""

    data: bytes
    log_offset: int
    tags_code: int
    stored_ms: int


@dataclass
class Fault:
    """A fault of the next call named `call`: an error before or after its effect, or a delay."""

    call: str
    after: bool = False
    seconds: float = 0


class MemoryBroker:
    """The topics, queues and groups of one broker."""

    def __init__(self, name="memory", clock=None):
        self.name, self.uuid, self.epoch = name, f"uuid-of-{name}", 0
        self.broker, self.run = BROKER, ""
        self.clock = clock or FakeClock()
        self.encoder = MessageEncoder(StoreConfig(), self.clock)
        self.topics, self.queues, self.minimum, self.groups = {}, {}, {}, {}
        self.cuts, self.appended, self.published, self.staged = [], {}, {}, {}
        self.changes = self.log_end = 0
        self.faults, self.names = [], count()
        _brokers[name] = self

    def call(self, name, seconds, safe, work):
        """Execute a call, unless a fault prevents it."""
        fault = next((each for each in self.faults if each.call == name), None)
        if fault is None:
            return work()
        if fault.seconds and fault.seconds <= seconds:
            return work()
        self.faults.remove(fault)
        if fault.after:
            result = work()
            if isinstance(result, Iterator):
                return _cut(result, name, safe)
        raise _failed(name, safe)

    def queue(self, topic, queue_id):
        return self.queues.setdefault(at(topic, queue_id, self.broker), [])

    def bounds(self, queue):
        first = self.minimum.get(queue, 0)
        return QueueOffsets(first, first + len(self.queues.get(queue, ())))

    def create(self, topic, queues=4):
        if topic not in self.topics:
            known = TopicConfig(topic, queues, queues, topic_id=f"id-{next(self.names)}")
            self.topics[topic] = known
            self.changes += 1
        return self.topics[topic]

    def route(self, topic):
        return AppendRoute(topic, self.create(topic).write_queues)

    def append(self, batch, topic, first_queue):
        """Store the rows; return their number and bytes."""
        columns, start = check_send_batch(batch), self.log_end
        rows = batch, columns, topic, first_queue or 0
        for one in self.encoder.encode_rows(*rows, self.route):
            self._store(one)
        self.changes += 1
        return AppendResult(len(columns), self.log_end - start, self.log_end)

    def _store(self, encoded):
        ends = self.log_end + encoded.bounds
        offsets, rows = [], []
        for queue_id in encoded.queue_ids.tolist():
            rows.append(self.queue(encoded.topic, queue_id))
            here = at(encoded.topic, queue_id, self.broker)
            offsets.append(self.bounds(here).maximum)
            rows[-1].append(None)
        encoded.place(ends[:-1], np.array(offsets, np.int64), self.clock())
        data = encoded.data.to_pybytes()
        for row, queue in enumerate(rows):
            first, last = encoded.bounds[row : row + 2].tolist()
            code = int(encoded.tags_codes[row])
            record = Record(data[first:last], int(ends[row]), code, self.clock())
            queue[queue.index(None)] = record
        self.log_end = int(ends[-1])

    def truncate(self, queue, end):
        """Truncate a queue, as recovery after a power loss does."""
        del self.queues[queue][end - self.bounds(queue).minimum :]
        self.epoch += 1
        self.cuts.append((self.epoch, queue, end))
        self.changes += 1

    def records(self, queue, start, end):
        has = self.bounds(queue)
        if not has.minimum <= start <= end <= has.maximum:
            raise OffsetOutOfRangeError(f"{queue} has {has}, not [{start}, {end}).")
        return self.queues.get(queue, [])[start - has.minimum : end - has.minimum]


def _failed(name, safe):
    return TransportError(f"{name}: the connection was lost.", repeat_is_safe=safe)


def _cut(slices, name, safe):
    """Yield the first slice, then fail."""
    for first in slices:
        yield first
        break
    raise _failed(name, safe)


def _over_the_wire(kind):
    """Route each call of a class that costs a round trip through `MemoryBroker.call`."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_") and name not in _LOCAL:
            setattr(kind, name, _passing(name, method))
    return kind


def _passing(name, method):
    @wraps(method)
    def call(self, *args, **kwargs):
        safe = name != "append" or bool(kwargs.get("repeat_id"))
        return self._broker.call(name, self._seconds, safe, lambda: method(self, *args, **kwargs))

    return call


@dataclass(frozen=True)
class MemoryTarget:
    """A broker of this process, by name."""

    name: str = "memory"
    store_id: str | None = None
    capabilities = frozenset(Capability) - {Capability.VIEWS}
    directory = None
    broker = ""

    @property
    def options(self):
        return {"path": f"/memory/{self.name}"}

    def describe(self):
        return f"memory:{self.name}"

    def of_store(self, store_id):
        return replace(self, store_id=store_id)

    def waiting(self):
        return self

    def of_broker(self, name, earlier=""):
        return self

    def open_source(self):
        return MemorySource(self._found())

    open_own_source = open_source

    def find_source(self):
        return self.open_source() if self.name in _brokers else None

    def close_source(self):
        pass

    def open_sink(self, *, config=None, create=False, staging=False):
        if create and self.name not in _brokers:
            MemoryBroker(self.name)
        return MemorySink(self._found())

    def not_shared(self, reason):
        return StoreNotSharedError(f"{self.describe()} is not the driver's: {reason}.")

    def _found(self):
        broker = _brokers.get(self.name)
        if broker is None and self.store_id is None:
            raise StoreNotFoundError(f"there is no {self.describe()}.")
        if broker is None or self.store_id not in (None, broker.uuid):
            raise self.not_shared("there is another store" if broker else "there is no store")
        return broker


@_over_the_wire
class MemorySource:
    """Reads from the broker."""

    def __init__(self, broker, seconds=DEADLINE):
        self._broker, self._seconds = broker, seconds

    @property
    def target(self):
        return MemoryTarget(self._broker.name, self._broker.uuid)

    def within(self, seconds, *, lock=None):
        return type(self)(self._broker, seconds)

    def by_broker(self, expected=()):
        return {self._broker.broker: self}

    def identities(self):
        return {
            self._broker.broker: SourceIdentity(store=self._broker.uuid, epoch=self._broker.epoch)
        }

    def plan(self, topics):
        ((broker, known),) = self.identities().items()
        existing = self.topics()
        bounds = self.bounds([topic for topic in topics if topic in existing])
        return ReadPlan(
            broker, known.store, known.epoch, self._broker.run, [*existing.values()], bounds
        )

    def now_ms(self):
        return self._broker.clock()

    def wait_for_change(self, version, seconds):
        """Return False: nothing notifies this source."""
        return False

    def version(self):
        return self._broker.name, self._broker.changes

    def is_recovering(self):
        return False

    def topics(self):
        return dict(self._broker.topics)

    def topic(self, name):
        if name not in self._broker.topics:
            raise TopicNotFoundError(f"there is no topic {name!r}.")
        return self._broker.topics[name]

    def bounds(self, topics):
        read = {topic: self._broker.topics[topic].read_queues for topic in topics}
        queues = [at(topic, n, self._broker.broker) for topic in read for n in range(read[topic])]
        return {queue: self._broker.bounds(queue) for queue in queues}

    def queue_bounds(self, queues):
        return {queue: self._broker.bounds(queue) for queue in queues}

    def retired(self, topics):
        kept = {topic: self._broker.topics[topic].read_queues for topic in topics}
        return {
            queue: self._broker.bounds(queue)
            for queue, records in self._broker.queues.items()
            if records and queue.topic in kept and queue.queue_id >= kept[queue.topic]
        }

    def offsets_at(self, times_ms):
        found = {}
        for queue, ms in times_ms.items():
            stored = [record.stored_ms for record in self._broker.queues.get(queue, ())]
            found[queue] = self._broker.bounds(queue).minimum + bisect_left(stored, ms)
        return found

    def truncations(self, epochs, queues):
        found = {}
        for epoch, queue, end in self._broker.cuts:
            if queue in queues and epochs.get(queue.broker, epoch) < epoch:
                found[queue] = min(end, found.get(queue, end))
        return found

    def mark(self, offsets):
        newest = None
        for queue, offset in offsets.items():
            has = self._broker.bounds(queue)
            if has.minimum < offset <= has.maximum:
                (record,) = self._broker.records(queue, offset - 1, offset)
                if newest is None or record.log_offset > newest.log_offset:
                    newest = record
        return newest and _mark_of(newest)

    def holds(self, mark):
        records = (record for queue in self._broker.queues.values() for record in queue)
        return any(_mark_of(record) == mark for record in records)

    def sizes(self, ranges):
        return [self._span(each) for each in ranges]

    def _span(self, each):
        records = self._records(each)
        if not records:
            return ByteSpan(0, 0, 0)
        last = records[-1]
        end = last.log_offset + len(last.data)
        return ByteSpan(records[0].log_offset, end, sum(len(one.data) for one in records))

    def split_at_bytes(self, splits):
        return [self._split(each, marks) for each, marks in splits]

    def _split(self, each, marks):
        sums = [0, *accumulate(len(record.data) for record in self._records(each))]
        reached = [max(n for n, total in enumerate(sums) if total <= mark) for mark in marks]
        return [(each.start + rows, sums[rows]) for rows in reached]

    def _records(self, each):
        return self._broker.records(each.queue, each.start, each.end)

    def slices(self, ranges, *, where=None, tally=None):
        where, tally = where or MessageFilter(), tally or ScanTally()
        return self._slices([(each.queue, self._records(each)) for each in ranges], where, tally)

    def joined_slice(self, ranges, *, where=None, tally=None):
        if sum(each.rows for each in ranges) > JOINED_ROWS:
            return None
        records = [record for each in ranges for record in self._records(each)]
        several = MessageQueue(ranges[0].queue.topic, self._broker.broker, SEVERAL_QUEUES)
        part = matching(_slice(several, records), where or MessageFilter())
        (tally or ScanTally()).add(ScanTally(len(records), len(records), len(part)))
        return replace(part, order=np.arange(len(part)))

    def _slices(self, parts, where, tally):
        for queue, records in parts:
            for first in range(0, len(records), SLICE_ROWS):
                some = records[first : first + SLICE_ROWS]
                chosen = where.may_match(queue.topic, np.array([one.tags_code for one in some]))
                read = [one for one, is_chosen in zip(some, chosen, strict=True) if is_chosen]
                part = matching(_slice(queue, read), where)
                tally.messages += len(part)
                if len(part):
                    yield part
                tally.entries, tally.records = tally.entries + len(some), tally.records + len(read)

    def locate(self, request):
        found = [self._located(queue, request) for queue in sorted(self._broker.queues)]
        return LookupResult(tuple(each for each in found if each is not None), 0, 0, 0)

    def _located(self, queue, request):
        records = self._broker.queues[queue]
        if queue.topic not in request.topics or not records:
            return None
        (rows,) = _slice(queue, records).decode(("keys", "msgId", "queueOffset"))
        wanted = [
            row
            for row, one in enumerate(rows.to_pylist())
            if request.begin_ms <= records[row].stored_ms <= request.end_ms
            and ({*one["keys"], one["msgId"]} & {*request.keys} or one["msgId"] in request.ids)
        ]
        numbers = [rows.column("queueOffset")[row].as_py() for row in wanted]
        places = [(records[row].log_offset, len(records[row].data)) for row in wanted]
        arrays = np.array([(n, *place) for n, place in zip(numbers, places, strict=True)])
        return MessageLocations.of(queue.topic, queue.queue_id, *arrays.T) if wanted else None

    def slices_at(self, locations, *, where=None, tally=None):
        queue = at(locations.topic, locations.queue_id, self._broker.broker)
        offsets = locations.queue_offsets.tolist()
        found = (self._broker.records(queue, each, each + 1) for each in offsets)
        parts = [(queue, records) for records in found]
        return self._slices(parts, where or MessageFilter(), tally or ScanTally())

    def plan_view(self, view, *, topics=(), group="", skips_damage=False):
        raise UnsupportedError("a broker in memory has no views.")

    def read_view(self, part, columns, *, topics=(), verify_crc):
        raise UnsupportedError("a broker in memory has no views.")

    def committed(self, group, topics=None):
        known = self._broker.groups.get(group, {})
        return {q: n for q, n in sorted(known.items()) if topics is None or q.topic in topics}

    def commit(self, group, offsets, *, backwards=False):
        known = self._broker.groups.setdefault(group, {})
        for queue, offset in offsets.items():
            topic = self._broker.topics.get(queue.topic)
            if topic is not None and queue.queue_id < topic.read_queues:
                end = min(offset, self._broker.bounds(queue).maximum)
                known[queue] = end if backwards else max(end, known.get(queue, 0))
        topics = {queue.topic for queue in offsets}
        return {queue: n for queue, n in sorted(known.items()) if queue.topic in topics}

    def deliver_due(self):
        return False

    def close(self):
        pass


def _mark_of(record):
    return LogMark(record.log_offset, record.stored_ms, zlib.crc32(record.data[:HEADER_BYTES]))


def _slice(queue, records):
    sizes = np.array([len(record.data) for record in records], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    base = np.array([record.log_offset for record in records], np.int64) - starts
    data = pa.py_buffer(b"".join(record.data for record in records))
    codes = np.array([record.tags_code for record in records], np.int64)
    return RecordSlice(queue, RecordFields(data, base, starts, sizes), codes)


@_over_the_wire
class MemorySink:
    """Writes to the broker."""

    retention = None

    def __init__(self, broker, seconds=DEADLINE):
        self._broker, self._seconds = broker, seconds

    @property
    def store_id(self):
        return self._broker.uuid

    def within(self, seconds):
        return MemorySink(self._broker, seconds)

    def prepare(self, topic, *, create=True, queues=None):
        if topic not in self._broker.topics and not create:
            raise TopicNotFoundError(f"there is no topic {topic!r}.")
        return self._broker.create(topic, queues or 4)

    def append(self, batch, *, topic=None, first_queue=None, repeat_id=""):
        known = self._broker.appended
        if not repeat_id or repeat_id not in known:
            known[repeat_id] = self._broker.append(batch, topic, first_queue)
        return known[repeat_id]

    def flush(self):
        pass

    def stage(self, batch, *, partition, attempt):
        return MemoryStager(self._broker, f"{batch.key}-{batch.batch}-{partition}-{attempt}")

    def publish(self, batch, staged, *, anonymous=False, on_difference="fail", on_gap="fail"):
        known = self._broker.published
        if batch in known:
            return replace(known[batch], rows=0, bytes=0, dropped=True)
        rows = size = 0
        for one in staged:
            for part in self._broker.staged.pop(one.name, ()):
                result = self._broker.append(*part)
                rows, size = rows + result.rows, size + result.bytes
        left_out = sum(one.left_out for one in staged)
        known[batch] = Published(rows, size, False, self._broker.log_end, left_out)
        return known[batch]

    def discard(self, staged):
        for one in staged:
            self._broker.staged.pop(one.name, None)

    def close(self, *, clean=True):
        pass


@dataclass
class MemoryStager:
    """Collects the rows of one task until they are published."""

    _broker: MemoryBroker
    name: str
    rows: int = 0
    left_out: int = 0
    parts: list = field(default_factory=list)
    is_finished: bool = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if not self.is_finished:
            self._broker.staged.pop(self.name, None)

    def append(self, batch, *, topic=None, first_queue=None):
        self.parts.append((batch, topic, first_queue))
        self.rows += len(check_send_batch(batch))
        return len(batch)

    def leave_out(self, rows):
        self.left_out += rows

    def finish(self):
        self.is_finished = True
        self._broker.staged[self.name] = self.parts
        content, _ = content_sum(check_send_batch(self.parts[0][0]))
        numbers = {"bytes": 0, "file_bytes": 0, "checksum": 0, "content": content}
        return Staged(
            name=self.name,
            rows=self.rows,
            store=self._broker.uuid,
            left_out=self.left_out,
            **numbers,
        )
