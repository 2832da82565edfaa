"""`SqliteMarks`: marks in a SQLite file, for consumers on one machine."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyrocket.base.arguments import check_text
from pyrocket.client.deduplication.store import Mark
from pyrocket.errors import InvalidInputError, StoreUnavailableError, UnsupportedError

VERSION = 1
BUSY_SECONDS = 30.0

# A mark without an owner is done; `until` is the end of its lease, or its expiry.
_TABLE = """
CREATE TABLE IF NOT EXISTS marks (
    consumer_group TEXT NOT NULL,
    message_key TEXT NOT NULL,
    owner TEXT,
    until INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, message_key)
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS marks_until ON marks (until)"
_BEGIN = """
INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
SET owner = excluded.owner, until = excluded.until WHERE until <= ?
"""
_OWNER = "SELECT owner FROM marks WHERE consumer_group = ? AND message_key = ?"
_DONE = """
INSERT INTO marks VALUES (?, ?, NULL, ?) ON CONFLICT DO UPDATE
SET owner = NULL, until = excluded.until
"""
_RELEASE = "DELETE FROM marks WHERE consumer_group = ? AND message_key = ? AND owner = ?"
_EXPIRE = """
DELETE FROM marks WHERE (consumer_group, message_key) IN (
    SELECT consumer_group, message_key FROM marks WHERE until <= ? LIMIT ?
)
"""


class SqliteMarks:
    """A `DeduplicationStore` in a SQLite file, without dependencies and without a server.

    Threads can share one object. Processes of one machine can share the file, also for different
    groups; a forked process must open it again. The file must be on a local disk, because the
    write-ahead log does not work over a network.

    The work and its mark are not one transaction. If a consumer dies after the work and before the
    key is marked as done, the work is repeated after the lease has ended. A power loss can undo the
    last marks, because commits are not flushed one by one. The work of these messages is repeated
    if they are delivered again. A commit that has returned survives the death of the process.

    All methods raise StoreUnavailableError (DEDUPLICATION_FAILED) if SQLite fails, for example
    because the disk is full or another process holds the write lock for 30 seconds.
    """

    is_atomic = False

    def __init__(self, path: str | os.PathLike[str], *, group: str) -> None:
        """Open the file, or create it. The marks belong to this consumer group.

        Raises InvalidInputError: DEDUPLICATION_GROUP if the group is empty, DEDUPLICATION_PATH if
        the path does not name a file, for example `:memory:`. Raises UnsupportedError (STORE_NEWER)
        if a later release has written the file, and StoreUnavailableError (DEDUPLICATION_FAILED).
        """
        self._group, self._path = checked_group(group), _checked_path(path)
        self._lock, self._process = threading.Lock(), os.getpid()
        with self._errors():
            self._connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        with self._transaction() as sql:
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                raise UnsupportedError(
                    f"{self._path} has version {version}; this release reads version {VERSION}.",
                    remedy="Update pyrocket.",
                    code="STORE_NEWER",
                )
            if version < VERSION:
                sql.execute(_TABLE)
                sql.execute(_INDEX)
                sql.execute(f"PRAGMA user_version = {VERSION}")
        with self._errors():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def begin(self, keys: Sequence[str], owner: str, now: int, lease_ms: int) -> list[Mark]:
        """Begin keys up to the first that is BUSY; see `DeduplicationStore`."""
        marks = []
        with self._transaction() as sql:
            for key in keys:
                marks.append(self._begin(sql, key, owner, now, lease_ms))
                if marks[-1] is Mark.BUSY:
                    break
        return marks

    def _begin(
        self, sql: sqlite3.Connection, key: str, owner: str, now: int, lease_ms: int
    ) -> Mark:
        if sql.execute(_BEGIN, (self._group, key, owner, now + lease_ms, now)).rowcount:
            return Mark.BEGUN
        (other,) = sql.execute(_OWNER, (self._group, key)).fetchone()
        return Mark.DONE if other is None else Mark.BUSY

    def done(self, keys: Sequence[str], owner: str, now: int, keep_ms: int) -> None:
        """Mark keys as done, even if the lease has ended: the work is done in any case."""
        with self._transaction() as sql:
            sql.executemany(_DONE, [(self._group, key, now + keep_ms) for key in keys])

    def release(self, keys: Sequence[str], owner: str) -> None:
        """Delete the marks that this owner has begun."""
        with self._transaction() as sql:
            sql.executemany(_RELEASE, [(self._group, key, owner) for key in keys])

    def expire(self, now: int, limit: int) -> int:
        """Delete expired marks of all groups, at most `limit`; return their number."""
        with self._transaction() as sql:
            return sql.execute(_EXPIRE, (now, limit)).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock of the file, and commit if the block succeeds."""
        if self._process != os.getpid():
            raise StoreUnavailableError(
                f"{self._path} was opened before this process was forked.",
                remedy="Create SqliteMarks in the process that uses it.",
                code="CLIENT_FORKED",
            )
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreUnavailableError(
                f"The marks in {self._path} cannot be used: {error}.",
                remedy="Use a SQLite file in a writable directory with free space, and open it"
                " before the first message.",
                code="DEDUPLICATION_FAILED",
            ) from error

    def close(self) -> None:
        """Close the file. Further calls raise StoreUnavailableError."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> "SqliteMarks":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _checked_path(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not name or name.startswith(":") or "\0" in name:
        raise InvalidInputError(
            f"path is {path!r}, which does not name a file.",
            remedy="Use a path on a local disk that all consumers of the group can open.",
            code="DEDUPLICATION_PATH",
        )
    return name


def checked_group(group: str) -> str:
    """Return the name of a group; raise InvalidInputError (DEDUPLICATION_GROUP) if it is empty."""
    check_text(group=group)
    if not group:
        raise InvalidInputError(
            "group is empty.",
            remedy="Use the name of the consumer group: groups with the same marks would skip each"
            " other's messages.",
            code="DEDUPLICATION_GROUP",
        )
    return group
