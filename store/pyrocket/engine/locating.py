"""Where the messages with any of many keys or ids are: looked for together, and each compared.

The key index is a hint, as it is for `lookup`. What is found can be read from its topic: a message
that no reader of its queue sees any more, having been cleaned away or of a deleted topic, is not.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.arguments import check_numbers, check_texts, check_type
from pyrocket.engine.key_lookup import KeyLookup
from pyrocket.engine.reader import Reader
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, to_text
from pyrocket.formats.index_file import key_hashes
from pyrocket.formats.message_id import parse_offset_message_id
from pyrocket.formats.properties import KEYS, UNIQ_KEY
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.message_locations import MessageLocations
from pyrocket.index.queues.record_fetch import records_at, sizes_at

Bools = npt.NDArray[np.bool_]

_EVER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class LookupRequest:
    """Messages of the topics that have one of the keys, or one of the ids.

    A key is a word of KEYS or a unique id; an id is a unique id or the broker's, which names a
    place. Only messages stored in [begin_ms, end_ms] count.
    """

    topics: Sequence[str]
    keys: Collection[str] = ()
    ids: Collection[str] = ()
    begin_ms: int = 0
    end_ms: int = _EVER


@dataclass(frozen=True)
class LookupResult:
    """Where messages are, by topic and queue, and what it took to find them.

    index_files: files of the key index that were used. walked_bytes: of the log behind them.
    candidates: messages that were compared.
    """

    places: tuple[MessageLocations, ...]
    index_files: int
    walked_bytes: int
    candidates: int

    def __len__(self) -> int:
        return sum(map(len, self.places))


@dataclass(frozen=True)
class _Rows:
    """Records that were found: log offsets, sizes, topics, queue ids and offsets, in log order."""

    at: Ints
    sizes: Ints
    topics: pa.StringArray
    queue_ids: Ints
    offsets: Ints


class Locator:
    """Looks for many messages at once. Never locks, never writes. Safe to share."""

    def __init__(self, lookup: KeyLookup, reader: Reader) -> None:
        self._lookup, self._reader = lookup, reader

    def locate(self, wanted: LookupRequest) -> LookupResult:
        """Return where the messages are. Raises StoreDamagedError at one that is damaged."""
        check_type(LookupRequest, "Use a pyrocket.Wanted(topics=…, keys=…).", wanted=wanted)
        check_texts(topics=wanted.topics, keys=wanted.keys, ids=wanted.ids)
        check_numbers(begin_ms=wanted.begin_ms, end_ms=wanted.end_ms)
        hashes = _hashes(wanted)
        hints = self._lookup.search(hashes, wanted.begin_ms, wanted.end_ms)
        named = self._named_places(wanted.ids, hints.bound)
        offsets = np.union1d(hints.offsets, named)
        found = [
            row
            for fields in self._records(offsets, hints.bound)
            if (row := _matching(fields, wanted, named)) is not None
        ]
        places = tuple(self._readable(found)) if found else ()
        return LookupResult(places, hints.files, hints.walked, len(offsets))

    def _named_places(self, ids: Collection[str], bound: int) -> Ints:
        """Return the log offsets, ascending, of messages whose brokers' ids are among the ids."""
        named = []
        for text in ids:
            parsed = parse_offset_message_id(text)
            if parsed is None:
                continue
            record = self._lookup.record_at(parsed[2], bound)
            if record is not None and (*record.store_host, record.physical_offset) == parsed:
                named.append(parsed[2])
        return np.unique(np.array(named, np.int64))

    def _records(self, offsets: Ints, bound: int) -> Iterator[RecordFields]:
        """Yield the records that begin at some of the offsets; the others are hints that fail."""
        log = self._lookup.log
        sizes = sizes_at(log, offsets, bound)
        offsets, sizes = offsets[sizes > 0], sizes[sizes > 0]
        seen = 0
        for rows, fields in records_at(log, offsets, sizes):
            _check_whole(offsets, seen, int(rows[0]), log.first_offset())
            yield fields
            seen = int(rows[-1]) + 1
        _check_whole(offsets, seen, len(offsets), log.first_offset())

    def _readable(self, found: list[_Rows]) -> Iterator[MessageLocations]:
        """Yield what a reader of the queues would see, queue by queue."""
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
            kept = rows[self._reader.points_to(*queue, offsets[rows]) == at[rows]]
            if len(kept):
                yield MessageLocations.of(*queue, offsets[kept], at[kept], sizes[kept])


def _hashes(wanted: LookupRequest) -> Ints:
    words = pa.array([*wanted.keys, *wanted.ids], pa.string())
    parts = [key_hashes(pa.scalar(topic, pa.string()), words) for topic in wanted.topics]
    return np.unique(np.concatenate([np.zeros(0, np.int32), *parts]))


def _matching(fields: RecordFields, wanted: LookupRequest, named: Ints) -> _Rows | None:
    """Return the records that are wanted; those at the places `named` are, if of the topics."""
    topics = to_text(fields.topics())
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
    properties = PropertyColumns(fields.properties())
    has = is_among(properties.column(UNIQ_KEY), [*wanted.keys, *wanted.ids])
    if wanted.keys:
        lists = pc.split_pattern(properties.column(KEYS), " ")
        hits = is_among(lists.flatten(), wanted.keys)
        has[pc.list_parent_indices(lists).to_numpy()[hits]] = True
    return has


def is_among(texts: pa.StringArray, wanted: Collection[str]) -> Bools:
    """Return whether each text is one of those; a null is none."""
    values = pa.array(list(wanted), pa.string())
    found: Bools = pc.is_in(texts, value_set=values).to_numpy(zero_copy_only=False)
    return found.copy()


def _check_whole(offsets: Ints, first: int, last: int, log_start: int) -> None:
    """Raise if a record that begins where the log is still there, was left out as damaged."""
    left_out = offsets[first:last]
    damaged = left_out[left_out >= log_start]
    if len(damaged):
        raise StoreDamagedError(
            f"corrupt record at log offset {int(damaged[0])}: its lengths do not add up.",
            remedy="Restore the log file from a backup.",
        )
