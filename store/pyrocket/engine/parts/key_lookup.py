"""`Store.lookup`: finds messages by key or id.

Candidates are read from the key index and from the log after its end. Each candidate is compared
with the request. The index is a hint: a message is returned only if a complete record starts at the
indexed offset and has exactly the topic and the key. `query` finds the newest messages with one key
that are still in the log. `locate` finds the messages of many keys and ids at once, but only
messages that readers of their queues can see; messages of deleted topics are not found.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.arguments import check_numbers, check_text, check_texts, check_type
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.errors import (
    InvalidInputError,
    MessageIdError,
    MessageNotFoundError,
    StoreDamagedError,
)
from pyrocket.formats.arrow_buffers import Bools, Ints, to_text
from pyrocket.formats.index_file import Geometry, key_hash, key_hashes
from pyrocket.formats.message_keys import parse_offset_message_id
from pyrocket.formats.properties import KEYS, UNIQ_KEY
from pyrocket.formats.record import HEADER, HEADER_BYTES, STORE_HOST, Host, read_header
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import IndexChangedError, IndexCoverage, KeyIndex
from pyrocket.index.keys.key_search import UnindexedTail
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.record_fetch import records_at, sizes_at
from pyrocket.log.valid_end import read_checkpoint
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import StoredMessage

_EVER = 2**63 - 1
_FIRST_READ = 4096
"""The size of the first read of a record in bytes; most records fit in it."""

_ATTEMPTS = 5

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class _KeyQuery:
    """A request for the newest messages of a topic with a key, stored in [begin_ms, end_ms]."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    max_messages: int

    def match(self, record: Record) -> StoredMessage | None:
        """Return the record as a message if it matches, else None."""
        if record.topic != self.topic:
            return None
        if not self.begin_ms <= record.store_timestamp <= self.end_ms:
            return None
        message = record.to_message()
        has_key = self.key == message.properties.get(UNIQ_KEY) or self.key in message.keys
        return message if has_key else None


@dataclass(frozen=True)
class _Rows:
    """The matching records, in log order."""

    at: Ints
    sizes: Ints
    topics: pa.StringArray
    queue_ids: Ints
    offsets: Ints


@dataclass(frozen=True)
class _Candidates:
    """Ascending log offsets of messages that may have the keys, and the range that was searched.

    bound: the end of the log. files: the number of index files searched. walked: the number of
        bytes of the log after the index that were searched.
    """

    offsets: Ints
    bound: int
    files: int
    walked: int


@translating_methods
class Lookup:
    """Finds messages in one store. Never locks, never writes. Safe to share between threads.

    Attributes:
        host: The address in the offset ids of the store's messages; that of the broker, if a broker
            serves the store. Records always contain STORE_HOST.
    """

    def __init__(self, engine: Engine) -> None:
        self.host: Host = STORE_HOST
        self._layout, self._reader, config = engine.layout, engine.reader, engine.config
        self._log = engine.reader.log
        geometry = Geometry(config.index_slots, config.index_items)
        self._index = KeyIndex(engine.layout, geometry)
        self._span = IndexCoverage(self._log, self._index)
        self._tail = UnindexedTail(self._log, engine.layout.pending_keys)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _EVER,
        max_messages: int = 64,
    ) -> list[StoredMessage]:
        """Return the newest messages with a key or unique id, oldest first.

        Only messages stored in [begin_ms, end_ms] (epoch milliseconds) match. Messages of deleted
        topics and of RocketMQ's system topics are also found while they are in the log.

            store.lookup.query("orders", "order-17")
        """
        check_text(topic=topic, key=key)
        check_numbers(begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages)
        if max_messages < 1:
            raise InvalidInputError(
                f"max_messages is {max_messages}.", remedy="Use at least 1.", code="MAX_MESSAGES"
            )
        query = _KeyQuery(topic, key, begin_ms, end_ms, max_messages)
        return self._with_files(partial(self._find, query))

    def by_offset_id(self, offset_msg_id: str) -> StoredMessage:
        """Return the message with an offset id: host, port and log offset in hexadecimal digits.

        Raises MessageIdError, MessageNotFoundError.
        """
        check_text(offset_msg_id=offset_msg_id)
        parsed = parse_offset_message_id(offset_msg_id)
        if parsed is None:
            raise MessageIdError(
                f"{offset_msg_id!r} is not an offset message id.",
                remedy="Offset message ids have 32 or 56 hexadecimal digits.",
            )
        record = self._record_at(parsed[2], self._reader.bound())
        if record is None or not self._is_at(record, parsed[:2]):
            raise _not_found(offset_msg_id, self._layout)
        return record.to_message()

    def by_id(self, topic: str, msg_id: str) -> StoredMessage:
        """Return the topic's message with this unique or offset id. Raises MessageNotFoundError.

        If a producer retried and several messages have the unique id, the first one stored is
        returned.
        """
        check_text(topic=topic, msg_id=msg_id)
        for message in self.query(topic, msg_id):
            if message.properties.get(UNIQ_KEY) == msg_id:
                return message
        if parse_offset_message_id(msg_id) is not None:
            message = self.by_offset_id(msg_id)
            if message.topic == topic:
                return message
        raise _not_found(msg_id, self._layout)

    def locate(self, wanted: LookupRequest) -> LookupResult:
        """Return the locations of all messages that match the request.

        `StoreSource.slices_at` reads them. Only messages that can currently be read from their
        topics are found. The key index is read once for all keys and ids. Raises StoreDamagedError
        if a message is corrupt.
        """
        check_type(LookupRequest, "Use a pyrocket.LookupRequest(topics=…, keys=…).", wanted=wanted)
        check_texts(topics=wanted.topics, keys=wanted.keys, ids=wanted.ids)
        check_numbers(begin_ms=wanted.begin_ms, end_ms=wanted.end_ms)
        hashes = _hashes(wanted)
        hints = self._with_files(partial(self._search, hashes, wanted.begin_ms, wanted.end_ms))
        named = self._offsets_of_ids(wanted.ids, hints.bound)
        offsets = np.union1d(hints.offsets, named)
        matches = [
            row
            for fields in self._records(offsets, hints.bound)
            if (row := _matching(fields, wanted, named)) is not None
        ]
        locations = tuple(self._readable(matches)) if matches else ()
        return LookupResult(locations, hints.files, hints.walked, len(offsets))

    def _offsets_of_ids(self, ids: Collection[str], bound: int) -> Ints:
        """Return the ascending log offsets of the messages whose offset ids are in `ids`."""
        named = []
        for text in ids:
            parsed = parse_offset_message_id(text)
            if parsed is None:
                continue
            record = self._record_at(parsed[2], bound)
            if record is not None and self._is_at(record, parsed[:2]):
                named.append(parsed[2])
        return np.unique(np.array(named, np.int64))

    def _is_at(self, record: Record, host: Host) -> bool:
        """Whether a host names the broker that stored a record."""
        return host == record.store_host or (record.store_host == STORE_HOST and host == self.host)

    def _records(self, offsets: Ints, bound: int) -> Iterator[RecordFields]:
        """Yield the records at the offsets; offsets at which no record starts are skipped."""
        log = self._log
        sizes = sizes_at(log, offsets, bound)
        offsets, sizes = offsets[sizes > 0], sizes[sizes > 0]
        seen = 0
        for rows, fields in records_at(log, offsets, sizes):
            _check_whole(offsets, seen, int(rows[0]), log.first_offset())
            yield fields
            seen = int(rows[-1]) + 1
        _check_whole(offsets, seen, len(offsets), log.first_offset())

    def _readable(self, found: list[_Rows]) -> Iterator[MessageLocations]:
        """Yield the locations of messages that readers of the queues can see, by queue."""
        topics = pa.chunked_array([rows.topics for rows in found]).combine_chunks()
        coded = topics.dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        at, sizes, queue_ids, offsets = (
            np.concatenate([getattr(rows, name) for rows in found])
            for name in ("at", "sizes", "queue_ids", "offsets")
        )
        order = np.lexsort((offsets, queue_ids, codes))
        is_new = np.diff(codes[order]) | np.diff(queue_ids[order])
        for rows in np.split(order, np.flatnonzero(is_new) + 1):
            queue = names[codes[rows[0]]], int(queue_ids[rows[0]])
            kept = rows[self._reader.log_offsets_at(*queue, offsets[rows]) == at[rows]]
            if len(kept):
                yield MessageLocations.of(*queue, offsets[kept], at[kept], sizes[kept])

    def _find(
        self, query: _KeyQuery, bound: int, files: Sequence[IndexFileInfo]
    ) -> list[StoredMessage]:
        messages: dict[int, StoredMessage] = {}
        seen: set[int] = set()
        wanted = np.array([key_hash(query.topic, query.key)])
        parts = self._parts(wanted, query.begin_ms, query.end_ms, bound, files)
        for offset in chain.from_iterable(part.tolist() for part in parts):
            if offset in seen:
                continue
            seen.add(offset)
            record = self._record_at(offset, bound)
            message = query.match(record) if record is not None else None
            if message is not None:
                messages[offset] = message
            if len(messages) == query.max_messages:
                break
        return [messages[offset] for offset in sorted(messages)]

    def _search(
        self, hashes: Ints, begin_ms: int, end_ms: int, bound: int, files: Sequence[IndexFileInfo]
    ) -> _Candidates:
        parts = [*self._parts(hashes, begin_ms, end_ms, bound, files)]
        start, starts = self._tail_start(files), self._log.run.starts()
        end = min(bound, starts[-1] + self._log.file_bytes) if starts else start
        offsets = np.unique(np.concatenate(parts))
        return _Candidates(offsets, bound, len(files), max(end - start, 0))

    def _with_files(self, look: Callable[[int, Sequence[IndexFileInfo]], _Found]) -> _Found:
        """Call `look` with the end of the log and the valid index files, and return its result."""
        for _ in range(_ATTEMPTS):
            bound = self._reader.bound()
            with suppress(IndexChangedError):
                return look(bound, self._files(bound))
        # The index files keep changing: search the whole log instead.
        return look(self._reader.bound(), ())

    def _files(self, bound: int) -> list[IndexFileInfo]:
        """Return the valid index files. Raises StoreDamagedError."""
        if bound == WHOLE_LOG and self._layout.abort.exists():
            # This directory needs a recovery, which would delete the index files that are not
            # durable.
            durable = self._index.count_durable(read_checkpoint(self._layout).index_timestamp)
            return self._span.contiguous_prefix(self._index.valid_prefix(WHOLE_LOG)[:durable])
        files = self._index.valid_prefix(WHOLE_LOG, strict=True)
        end = self._reader.bound()  # Messages appended in the meantime may be in the index.
        return self._span.contiguous_prefix(
            [file for file in files if file.header.end_offset < end]
        )

    def _parts(
        self, hashes: Ints, begin_ms: int, end_ms: int, bound: int, files: Sequence[IndexFileInfo]
    ) -> Iterator[Ints]:
        """Yield log offsets from the log's end and the index, newest first for a single hash."""
        start = self._tail_start(files)
        # The structure changes when log files are truncated or deleted.
        mark = None if bound == WHOLE_LOG else self._reader.position().structure
        yield self._tail.search(hashes, start, max(start, bound), mark)[::-1]
        yield from self._index.search(hashes, begin_ms, end_ms, files)

    def _tail_start(self, files: Sequence[IndexFileInfo]) -> int:
        """Return the log offset up to which the log is indexed."""
        end = files[-1].header.end_offset if files else 0
        return max(end, self._log.first_offset())

    def _record_at(self, offset: int, bound: int) -> Record | None:
        """Return the record at `offset` that ends by `bound`, or None. Raises StoreDamagedError."""
        if offset < 0:
            return None
        try:
            data = self._log.read(offset, _FIRST_READ)
            if len(data) < HEADER_BYTES or not read_header(data).is_message:
                return None
            header = np.frombuffer(data, HEADER, 1)[0]
            size = int(header["size"])
            if header["physical_offset"] != offset or offset + size > bound:
                return None
            if size > len(data):
                data = self._log.read(offset, min(size, self._log.file_bytes))
        except FileNotFoundError:
            return None
        return decode_record(data, sealed=self._log.sealed())


def _hashes(wanted: LookupRequest) -> Ints:
    words = pa.array([*wanted.keys, *wanted.ids], pa.string())
    parts = [key_hashes(pa.scalar(topic, pa.string()), words) for topic in wanted.topics]
    return np.unique(np.concatenate([np.zeros(0, np.int32), *parts]))


def _matching(fields: RecordFields, wanted: LookupRequest, named: Ints) -> _Rows | None:
    """Return the records that match; those at the offsets `named` need no matching key or id."""
    topics = to_text(fields.topics)
    stored = fields.store_timestamp
    good = is_among(topics, wanted.topics)
    good &= (stored >= wanted.begin_ms) & (stored <= wanted.end_ms)
    good &= _has_key(fields, wanted) | np.isin(fields.physical_offset, named)
    rows = np.flatnonzero(good)
    if not len(rows):
        return None
    return _Rows(
        at=fields.physical_offset[rows],
        sizes=fields.sizes[rows],
        topics=topics.take(pa.array(rows)),
        queue_ids=fields.queue_id[rows].astype(np.int64),
        offsets=fields.queue_offset[rows],
    )


def _has_key(fields: RecordFields, wanted: LookupRequest) -> Bools:
    properties = fields.property_columns
    has = is_among(properties.column(UNIQ_KEY), [*wanted.keys, *wanted.ids])
    if wanted.keys:
        lists = pc.split_pattern(properties.column(KEYS), " ")
        hits = is_among(lists.flatten(), wanted.keys)
        has[pc.list_parent_indices(lists).to_numpy()[hits]] = True
    return has


def is_among(texts: pa.StringArray, wanted: Collection[str]) -> Bools:
    """Return for each string whether it is in `wanted`; False for a null."""
    values = pa.array(list(wanted), pa.string())
    mask: Bools = pc.is_in(texts, value_set=values).to_numpy(zero_copy_only=False)
    return mask.copy()


def _check_whole(offsets: Ints, first: int, last: int, log_start: int) -> None:
    """Raise StoreDamagedError if a record was skipped although its log file still exists."""
    left_out = offsets[first:last]
    damaged = left_out[left_out >= log_start]
    if len(damaged):
        raise StoreDamagedError(
            f"corrupt record at log offset {int(damaged[0])}: its lengths do not add up.",
            remedy="Restore the log file from a backup.",
        )


def _not_found(msg_id: str, layout: Layout) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"there is no message {msg_id!r} in {layout.root}.",
        remedy="It belongs to another store or topic, or its log file has been deleted.",
    )
