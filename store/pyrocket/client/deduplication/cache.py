"""`CachedMarks`: marks of recently consumed messages, in memory, in front of another store."""

import threading
from collections.abc import Iterable, Sequence
from itertools import islice

from pyrocket.base.arguments import check_numbers
from pyrocket.client.deduplication.store import DeduplicationStore, Mark
from pyrocket.errors import InvalidInputError


class CachedMarks:
    """A `DeduplicationStore` that recognises recent duplicates without asking the inner store.

        store = CachedMarks(SqliteMarks("/data/marks.db", group="billing"))

    Only keys that the inner store has marked as done are cached. A key that is not cached is always
    looked up in the inner store, so that a lost or full cache costs time only. Because the cache
    does not know when the marks of duplicates expire, it may recognise a duplicate for up to
    `keep_ms` longer than the inner store.
    """

    def __init__(
        self, store: DeduplicationStore, *, size: int = 100_000, keep_ms: int = 600_000
    ) -> None:
        """Cache at most `size` keys, each for `keep_ms`.

        Raises InvalidInputError (NOT_A_NUMBER, DEDUPLICATION_CACHE).
        """
        check_numbers(size=size, keep_ms=keep_ms)
        if size < 1 or keep_ms < 1:
            raise InvalidInputError(
                f"size is {size}, and keep_ms is {keep_ms}.",
                remedy="Use at least 1 for both, or use the inner store without a cache.",
                code="DEDUPLICATION_CACHE",
            )
        self._store, self._size, self._keep_ms = store, size, keep_ms
        self._lock = threading.Lock()
        self._expiry: dict[str, int] = {}

    @property
    def is_atomic(self) -> bool:
        return self._store.is_atomic

    def begin(self, keys: Sequence[str], owner: str, now: int, lease_ms: int) -> list[Mark]:
        with self._lock:
            cached = {key for key in keys if self._expiry.get(key, now) > now}
        asked = [key for key in keys if key not in cached]
        answers = self._store.begin(asked, owner, now, lease_ms) if asked else []
        by_key = dict(zip(asked, answers, strict=False))
        self._remember(
            (key for key, mark in by_key.items() if mark is Mark.DONE), now, self._keep_ms
        )
        marks = []
        for key in keys:
            marks.append(Mark.DONE if key in cached else by_key[key])
            if marks[-1] is Mark.BUSY:
                break
        return marks

    def done(self, keys: Sequence[str], owner: str, now: int, keep_ms: int) -> None:
        """Mark keys as done in the inner store, then cache them."""
        self._store.done(keys, owner, now, keep_ms)
        self._remember(keys, now, min(keep_ms, self._keep_ms))

    def release(self, keys: Sequence[str], owner: str) -> None:
        self._store.release(keys, owner)

    def expire(self, now: int, limit: int) -> int:
        return self._store.expire(now, limit)

    def _remember(self, keys: Iterable[str], now: int, keep_ms: int) -> None:
        with self._lock:
            for key in keys:
                self._expiry.pop(key, None)
                self._expiry[key] = now + keep_ms
            # The oldest keys are first.
            excess = max(0, len(self._expiry) - self._size)
            for key in [*islice(self._expiry, excess)]:
                del self._expiry[key]
