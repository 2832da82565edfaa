"""Messages by key and by id: candidates from the key index and the log's end, each compared.

The index is a hint. Whatever it says, a message is found only if its record is whole, begins where
the index says, and has exactly the topic and the key.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.engine.reader import Reader
from pyrocket.errors import InvalidInputError, MessageIdError, MessageNotFoundError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import Geometry, key_hash
from pyrocket.formats.message_id import parse_offset_message_id
from pyrocket.formats.properties import UNIQ_KEY
from pyrocket.formats.record import HEADER, HEADER_BYTES, read_header
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.index.keys.index_coverage import IndexCoverage
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import IndexChangedError, KeyIndex
from pyrocket.index.keys.key_search import UnindexedTail
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.checkpoint_file import read_checkpoint
from pyrocket.log.commit_log import CommitLog
from pyrocket.message import StoredMessage

_FIRST_READ = 4096
_SAME_ID = 64
_ATTEMPTS = 5

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Candidates:
    """Log offsets, ascending, of what may have the keys; all it takes to have found them all.

    bound: where the log ended. files: index files that count. walked: bytes of the log behind them
    that were looked through, at most.
    """

    offsets: Ints
    bound: int
    files: int
    walked: int


class KeyLookup:
    """Looks messages up in one directory; never locks, never writes. Safe to share."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout, self._reader = layout, reader
        config = reader.identity.config
        self._log = reader.log
        geometry = Geometry(config.index_slots, config.index_items)
        self._index = KeyIndex(layout, geometry)
        self._span = IndexCoverage(self._log, self._index)
        self._tail = UnindexedTail(self._log, layout.pending_keys)

    @property
    def log(self) -> CommitLog:
        """The log, for reading what was found."""
        return self._log

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_messages: int
    ) -> list[StoredMessage]:
        """Return the newest messages of the key stored in [begin_ms, end_ms], oldest first."""
        if max_messages < 1:
            raise InvalidInputError(
                f"max_messages is {max_messages}.", remedy="Use at least 1.", code="MAX_MESSAGES"
            )
        find = partial(self._find, topic, key, begin_ms, end_ms, max_messages)
        return self._with_files(find)

    def search(self, hashes: Ints, begin_ms: int, end_ms: int) -> Candidates:
        """Return where messages may be that have keys with these hashes; see `formats.key_table`.

        Those that were not stored in [begin_ms, end_ms] may be among them, and other messages.
        """
        return self._with_files(partial(self._search, hashes, begin_ms, end_ms))

    def _with_files(self, look: Callable[[int, Sequence[IndexFileInfo]], _Found]) -> _Found:
        """Return what `look` returns for the log's end and the index files that count."""
        for _ in range(_ATTEMPTS):
            bound = self._reader.bound()
            with suppress(IndexChangedError):
                return look(bound, self._files(bound))
        # Index files come and go all the time. The log has all there is.
        return look(self._reader.bound(), ())

    def _search(
        self, hashes: Ints, begin_ms: int, end_ms: int, bound: int, files: Sequence[IndexFileInfo]
    ) -> Candidates:
        found = [*self._parts(hashes, begin_ms, end_ms, bound, files)]
        start, starts = self._tail_start(files), self._log.run.starts()
        end = min(bound, starts[-1] + self._log.file_bytes) if starts else start
        offsets = np.unique(np.concatenate(found))
        return Candidates(offsets, bound, len(files), max(end - start, 0))

    def _find(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        max_messages: int,
        bound: int,
        files: Sequence[IndexFileInfo],
    ) -> list[StoredMessage]:
        found: dict[int, StoredMessage] = {}
        seen: set[int] = set()
        wanted = np.array([key_hash(topic, key)])
        parts = self._parts(wanted, begin_ms, end_ms, bound, files)
        for offset in chain.from_iterable(part.tolist() for part in parts):
            if offset in seen:
                continue
            seen.add(offset)
            record = self.record_at(offset, bound)
            if record is None or not begin_ms <= record.store_timestamp <= end_ms:
                continue
            if record.topic == topic:
                message = record.to_message()
                if key == message.properties.get(UNIQ_KEY) or key in message.keys:
                    found[offset] = message
            if len(found) == max_messages:
                break
        return [found[offset] for offset in sorted(found)]

    def by_offset_id(self, offset_msg_id: str) -> StoredMessage:
        """Return the message with the broker's id. Raises MessageIdError, MessageNotFoundError."""
        parsed = parse_offset_message_id(offset_msg_id)
        if parsed is None:
            raise MessageIdError(
                f"{offset_msg_id!r} is no offset message id.",
                remedy="It has 32 hexadecimal digits, or 56: host, port and log offset.",
            )
        record = self.record_at(parsed[2], self._reader.bound())
        if record is None or (*record.store_host, record.physical_offset) != parsed:
            raise _not_found(offset_msg_id, self._layout)
        return record.to_message()

    def by_id(self, topic: str, msg_id: str) -> StoredMessage:
        """Return the message of the topic with this unique id, or else this offset id.

        Of several with one unique id, as of a producer that tried again, the first stored.
        """
        for message in self.query(topic, msg_id, 0, 2**63 - 1, _SAME_ID):
            if message.properties.get(UNIQ_KEY) == msg_id:
                return message
        if parse_offset_message_id(msg_id) is not None:
            message = self.by_offset_id(msg_id)
            if message.topic == topic:
                return message
        raise _not_found(msg_id, self._layout)

    def _files(self, bound: int) -> list[IndexFileInfo]:
        """Return the index files that count. Raises StoreDamagedError."""
        if bound == WHOLE_LOG and self._layout.abort.exists():
            # Nobody has recovered this directory: what the next writer would remove is not used.
            durable = self._index.count_durable(read_checkpoint(self._layout).index_timestamp)
            return self._span.contiguous_prefix(self._index.valid_prefix(WHOLE_LOG)[:durable])
        files = self._index.valid_prefix(WHOLE_LOG, strict=True)
        end = self._reader.bound()  # What has been appended since may be indexed already.
        return self._span.contiguous_prefix(
            [file for file in files if file.header.end_offset < end]
        )

    def _parts(
        self, hashes: Ints, begin_ms: int, end_ms: int, bound: int, files: Sequence[IndexFileInfo]
    ) -> Iterator[Ints]:
        """Yield log offsets, of a single hash newest first: the log's end, then the index."""
        start = self._tail_start(files)
        yield self._tail.search(hashes, start, max(start, bound), self._mark(bound))[::-1]
        yield from self._index.search(hashes, begin_ms, end_ms, files)

    def _tail_start(self, files: Sequence[IndexFileInfo]) -> int:
        """Return from where on the index does not know the log."""
        end = files[-1].header.end_offset if files else 0
        return max(end, self._log.first_offset())

    def _mark(self, bound: int) -> int | None:
        """Return what stays the same as long as the log only grows; None where nothing tells."""
        return None if bound == WHOLE_LOG else self._reader.position().structure

    def record_at(self, offset: int, bound: int) -> Record | None:
        """Return the record that begins at `offset` and ends by `bound`; None where none does.

        Raises StoreDamagedError for one that is damaged.
        """
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


def _not_found(msg_id: str, layout: Layout) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"there is no message {msg_id!r} in {layout.root}.",
        remedy="It is of another store or topic, or was cleaned away with time.",
    )
