"""`TransactionMarks`: marks in the caller's database, committed together with the work."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import Any, Protocol

from pyrocket.client.deduplication.sqlite import checked_group
from pyrocket.client.deduplication.store import Mark
from pyrocket.errors import InvalidInputError, PyrocketError

PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "named": ":{}"}
"""The placeholder of a parameter for each paramstyle of DB-API; `{}` is the parameter's number."""

_TABLE = """
CREATE TABLE pyrocket_marks (
    mark CHAR(64) NOT NULL PRIMARY KEY, expires_at BIGINT NOT NULL
)
"""
_INDEX = "CREATE INDEX pyrocket_marks_expiry ON pyrocket_marks (expires_at)"
_DELETE = "DELETE FROM pyrocket_marks WHERE mark = {} AND expires_at <= {}"


class DatabaseConnection(Protocol):
    """The methods of a DB-API connection (PEP 249) that are used."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll the transaction back."""


class TransactionMarks:
    """A `DeduplicationStore` in a table `pyrocket_marks` of the caller's database.

    `Deduplicated` begins a transaction with the marks, calls the listener, and commits if the
    result is a SUCCESS for all messages. Otherwise it rolls back, so that no message of the batch
    is consumed; a smaller batch limits how much is repeated. Changes that the listener makes
    through the same connection are therefore committed exactly once for each key. Other effects of
    the listener, such as emails or files, are not undone and may be repeated.

        connection = sqlite3.connect("shop.db")
        store = TransactionMarks(lambda: connection, group="billing")
        store.create_table()

    If two consumers receive the same key, the second waits in the database until the first commits
    or rolls back; if the database ends the wait with an error, the batch is delivered again.

    The listener must not commit or roll back. The connection must not be in autocommit mode, and
    the table must support transactions. The isolation level does not matter, because `mark` is a
    primary key. A mark is the SHA-256 of group and key, so that the collation of the database and
    its limits on the length of strings do not matter either.

    Exceptions of the driver are passed on. Misuse raises InvalidInputError
    (DEDUPLICATION_CONNECTION): a connection in autocommit mode, with an open transaction, or used
    by two threads at the same time, as far as the driver shows this.
    """

    is_atomic = True

    def __init__(
        self, connect: Callable[[], DatabaseConnection], *, group: str, paramstyle: str = "qmark"
    ) -> None:
        """Use the connections that `connect` returns.

        `connect` must return the same connection to the listener and to this object, and different
        connections to different threads. `paramstyle` is the constant of the driver's module, for
        example `psycopg.paramstyle`. Raises InvalidInputError (DEDUPLICATION_GROUP,
        DEDUPLICATION_CONNECTION).
        """
        self._group = checked_group(group)
        if not callable(connect):
            raise _misuse(f"connect is {connect!r}.", "Use a function that returns a connection.")
        if paramstyle not in PLACEHOLDERS:
            raise _misuse(f"paramstyle is {paramstyle!r}.", f"Use one of {[*PLACEHOLDERS]}.")
        self._connect, self._placeholder = connect, PLACEHOLDERS[paramstyle]
        self._lock = threading.Lock()
        self._open: dict[str, DatabaseConnection] = {}

    def create_table(self) -> None:
        """Create the table and its index, unless the table exists.

        Call this once, before consumers start: databases differ in what they do if two processes
        create the same table.
        """
        with self._alone("creates the table") as connection:
            try:
                self._look_up(connection, [""])
            except Exception:
                connection.rollback()
                with closing(connection.cursor()) as cursor:
                    cursor.execute(_TABLE)
                    cursor.execute(_INDEX)

    def begin(self, keys: Sequence[str], owner: str, now: int, lease_ms: int) -> list[Mark]:
        """Begin a transaction with marks of the keys; see `DeduplicationStore`.

        The marks are DONE or BEGUN: the call waits for other transactions. If a listener commits
        although it must not, its marks expire at the end of the lease unless `done` extends them.
        """
        marks = {key: self._mark(key) for key in keys}
        connection = self._take(owner)
        try:
            begun = self._begin(connection, sorted(marks.values()), now, lease_ms)
        except BaseException:
            self._end(owner)
            raise
        if not begun:
            self._end(owner)
        return [Mark.BEGUN if marks[key] in begun else Mark.DONE for key in keys]

    def _begin(
        self, connection: DatabaseConnection, marks: list[str], now: int, lease_ms: int
    ) -> list[str]:
        """Insert the marks that do not exist or have expired; return them.

        If another transaction commits one of them after it was looked up, the insertion fails, and
        is repeated without that mark. All transactions insert marks in sorted order, which prevents
        deadlocks.
        """
        for attempt in range(len(marks) + 1):
            expiries = self._look_up(connection, marks)
            # A lookup can begin a read transaction; SQLite cannot always upgrade it to a write
            # transaction.
            connection.rollback()
            new = [mark for mark in marks if expiries.get(mark, now) <= now]
            try:
                self._insert(connection, new, expiries, now, now + lease_ms)
            except Exception as error:
                if attempt == len(marks) or not _is_integrity_error(error):
                    raise
                connection.rollback()
            else:
                return new
        return []

    def _look_up(self, connection: DatabaseConnection, marks: Sequence[str]) -> dict[str, int]:
        """Return the expiry of each mark that exists."""
        expiries = {}
        with closing(connection.cursor()) as cursor:
            for mark in marks:
                self._run(cursor, "SELECT expires_at FROM pyrocket_marks WHERE mark = {}", mark)
                row = cursor.fetchone()
                if row is not None:
                    expiries[mark] = row[0]
        return expiries

    def _insert(
        self,
        connection: DatabaseConnection,
        new: list[str],
        expired: dict[str, int],
        now: int,
        until: int,
    ) -> None:
        with closing(connection.cursor()) as cursor:
            for mark in new:
                if mark in expired:
                    self._run(cursor, _DELETE, mark, now)
                self._run(cursor, "INSERT INTO pyrocket_marks VALUES ({}, {})", mark, until)

    def done(self, keys: Sequence[str], owner: str, now: int, keep_ms: int) -> None:
        """Commit the marks and the work. If this raises, both are rolled back.

        Raises PyrocketError (DEDUPLICATION_ROLLED_BACK) if the listener has rolled back the marks.
        """
        connection = self._open[owner]
        try:
            with closing(connection.cursor()) as cursor:
                for key in keys:
                    update = "UPDATE pyrocket_marks SET expires_at = {} WHERE mark = {}"
                    self._run(cursor, update, now + keep_ms, self._mark(key))
                    if cursor.rowcount == 0:
                        raise PyrocketError(
                            "The listener has rolled back its transaction, and returned SUCCESS.",
                            remedy="Raise an exception instead of rolling back.",
                            code="DEDUPLICATION_ROLLED_BACK",
                        )
            connection.commit()
        except BaseException:
            self._end(owner)
            raise
        with self._lock:
            del self._open[owner]

    def release(self, keys: Sequence[str], owner: str) -> None:
        """Roll back the marks and the work of this owner."""
        self._end(owner)

    def expire(self, now: int, limit: int) -> int:
        """Delete expired marks of all groups, at most `limit`; return their number."""
        with self._alone("deletes expired marks") as connection:
            with closing(connection.cursor()) as cursor:
                self._run(cursor, "SELECT mark FROM pyrocket_marks WHERE expires_at <= {}", now)
                marks = sorted(row[0] for row in cursor.fetchmany(limit))
            connection.rollback()
            with closing(connection.cursor()) as cursor:
                for mark in marks:
                    self._run(cursor, _DELETE, mark, now)
        return len(marks)

    @contextmanager
    def _alone(self, purpose: str) -> Iterator[DatabaseConnection]:
        """Yield the connection of the calling thread; commit if the block succeeds."""
        owner = f"thread {threading.get_ident()} {purpose}"
        connection = self._take(owner)
        try:
            yield connection
            connection.commit()
        finally:
            self._end(owner)

    def _take(self, owner: str) -> DatabaseConnection:
        """Reserve the connection of the calling thread for an owner, until `_end`."""
        connection = self._connect()
        if not all(hasattr(connection, name) for name in ("cursor", "commit", "rollback")):
            raise _misuse(
                f"connect returned {connection!r}.", "Return a DB-API connection (PEP 249)."
            )
        with self._lock:
            if any(connection is used for used in self._open.values()):
                raise _misuse(
                    "Another call is using the same connection.",
                    "Let `connect` return different connections to different threads.",
                )
            _check_transactions(connection)
            self._open[owner] = connection
        return connection

    def _end(self, owner: str) -> None:
        """Roll the transaction back."""
        with self._lock:
            connection = self._open.pop(owner)
        connection.rollback()

    def _mark(self, key: str) -> str:
        return sha256(f"{self._group}\0{key}".encode()).hexdigest()

    def _run(self, cursor: Any, statement: str, *values: Any) -> None:
        numbered = (self._placeholder.format(number) for number in range(1, len(values) + 1))
        cursor.execute(statement.format(*numbered), values)


def _check_transactions(connection: Any) -> None:
    mode = getattr(connection, "autocommit", None)
    is_sqlite = isinstance(connection, sqlite3.Connection)
    # `autocommit` is new in Python 3.12. If it is False, a transaction is always open.
    if mode is True or (is_sqlite and mode is not False and connection.isolation_level is None):
        raise _misuse("The connection is in autocommit mode.", "Turn autocommit off.")
    if is_sqlite and mode is not False and connection.in_transaction:
        raise _misuse(
            "The connection has an open transaction, whose changes would be lost.",
            "Commit before messages are consumed.",
        )


def _is_integrity_error(error: Exception) -> bool:
    """Return whether a driver's exception is the IntegrityError of PEP 249."""
    return any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__)


def _misuse(message: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(message, remedy=remedy, code="DEDUPLICATION_CONNECTION")
