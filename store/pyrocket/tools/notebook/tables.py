"""The tables of a store: topics, queues, consumer groups, lag, and the newest messages.

A `Table` is displayed as HTML in a notebook and as text elsewhere.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from html import escape
from itertools import pairwise
from os import PathLike
from typing import Any

from pyrocket.base.arguments import local_path
from pyrocket.errors import InvalidInputError, StoreNotFoundError, TopicNotFoundError
from pyrocket.formats.properties import RESERVED_PROPERTIES
from pyrocket.store import Store
from pyrocket.tools.session import (
    Place,
    Session,
    broker_place,
    connect,
    open_session,
    open_sessions,
    session_of,
)
from pyrocket.tools.summaries import (
    QueueLag,
    TopicInfo,
    at_any,
    lags_of_all,
    sum_by_topic,
    topic_of,
    topics_of,
)
from pyrocket.values.message import MessageQueue, StoredMessage

_MAX_CHARACTERS = 120
"""Maximum length of a displayed value; the rows hold the complete value."""

_NUMBERS = (int, timedelta)


@dataclass(frozen=True, repr=False)
class Table:
    """Named columns and rows of plain values: int, str, bytes, datetime, timedelta, dict, None."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows by column name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def column(self, name: str) -> list[Any]:
        """Return the values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def __repr__(self) -> str:
        return f"{safe(self.title)}\n{self.text()}"

    def text(self) -> str:
        """Return the column names and the rows, one per line, without the title."""
        # Characters of some scripts are two cells wide.
        from rich.cells import cell_len

        lines = [list(self.columns), *([shown(value) for value in row] for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        numbers = [self.is_number(at) for at in range(len(self.columns))]

        def padded(at: int, text: str) -> str:
            room = " " * (widths[at] - cell_len(text))
            return room + text if numbers[at] else text + room

        texts = ("  ".join(padded(at, text) for at, text in enumerate(line)) for line in lines)
        return "\n".join(text.rstrip() for text in texts)

    def _repr_html_(self) -> str:
        heads = "".join(
            f"<th{self._align(at)}>{escape(name)}</th>" for at, name in enumerate(self.columns)
        )
        lines = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        caption = f"<caption>{escape(safe(self.title))}</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"

    def _cells(self, row: tuple[Any, ...]) -> str:
        return "".join(
            f"<td{self._align(at)}>{escape(shown(value))}</td>" for at, value in enumerate(row)
        )

    def _align(self, at: int) -> str:
        return f' style="text-align:{"right" if self.is_number(at) else "left"}"'

    def is_number(self, at: int) -> bool:
        return any(isinstance(row[at], _NUMBERS) for row in self.rows)


def shown(value: Any) -> str:
    """Return a value as text on one line, shortened, with control characters escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return _duration(int(value.total_seconds()))
    if isinstance(value, bytes):
        return _short(value.decode(errors="backslashreplace"))
    if isinstance(value, dict):
        return _short(", ".join(f"{name}={entry}" for name, entry in value.items()))
    return _short(str(value))


def _short(text: str) -> str:
    # A body may have megabytes: escape only the part that may be displayed.
    short = safe(text[: 4 * _MAX_CHARACTERS])
    cut = len(text) > 4 * _MAX_CHARACTERS or len(short) > _MAX_CHARACTERS
    return short[: _MAX_CHARACTERS - 1] + "…" if cut else short


def safe(text: str) -> str:
    """Return the text with all non-printable characters escaped, including line ends."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _duration(seconds: int) -> str:
    """Return a duration in its two largest units, such as `2h 5m`."""
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


StoreOrPath = Store | Session | str | PathLike[str] | None
"""None: the store in the environment variable PYROCKET_STORE or PYROCKET_ENDPOINT."""

_BARS = "▁▂▃▄▅▆▇█"
_TREND_PARTS = 16
_MAX_PEEK = 1000


def topics(store: StoreOrPath = None, *, system: bool = False) -> Table:
    """Return the topics of the topic table; RocketMQ's own topics only with `system`.

    bytes: approximate size of the messages in the log.
    first, last: store times of the oldest and the newest message, UTC.
    trend: number of messages in each of 16 equal intervals from first to last.
    """
    with _opened(store) as opened:
        rows = [
            (info.name, info.read_queues, info.messages, info.bytes, info.first, info.last, trend)
            for info in topics_of(opened)
            if info.read_queues and (system or info.kind != "system")
            for trend in [_trend(opened, info)]
        ]
        columns = ("topic", "queues", "messages", "bytes", "first", "last", "trend")
        return Table(f"Topics of {opened.name}", columns, rows)


def queues(store: StoreOrPath = None, topic: str = "") -> Table:
    """Return the queues of a topic: minimum and maximum offset, and columns as in `topics`.

    Raises StoreNotFoundError, TopicNotFoundError.
    """
    topic = _named(topic)
    with _opened(store) as opened:
        return queue_table(f"Queues of {topic}", topic_of(opened, topic))


def queue_table(title: str, topic: TopicInfo) -> Table:
    columns = ("queue", "minimum", "maximum", "messages", "bytes", "first", "last")
    rows = [
        (info.queue_id, info.minimum, info.maximum, info.maximum - info.minimum, info.bytes, *times)
        for info in topic.queues
        for times in [(info.first, info.last)]
    ]
    return Table(title, columns, rows)


def groups(store: StoreOrPath = None) -> Table:
    """Return the consumer groups, one row for each topic with committed offsets.

    With name servers in PYROCKET_ENDPOINT, the groups of all brokers.

    lag, bytes, behind: as in `lag`, but for all queues together.
    """
    with _opened_all(store) as opened:
        names = dict.fromkeys(name for session in opened for name in session.admin.groups.all())
        title = f"Groups of {', '.join(session.name for session in opened)}"
        return group_table(title, names, lags_of_all(opened))


def group_table(title: str, names: Iterable[str], lags: Iterable[QueueLag]) -> Table:
    """Return groups and their lags by topic as a table."""
    rows: list[tuple[object, ...]] = [
        (total.group, total.topic, total.lag, total.bytes, timedelta(milliseconds=total.delay_ms))
        for total in sum_by_topic(lags)
    ]
    known = {row[0] for row in rows}
    rows += [(name, None, None, None, None) for name in names if name not in known]
    rows.sort(key=lambda row: str(row[0]))
    return Table(title, ("group", "topic", "lag", "bytes", "behind"), rows)


def lag(store: StoreOrPath = None, group: str | None = None) -> Table:
    """Return the lag of a group, or of all groups, in each queue of its topics.

    With name servers in PYROCKET_ENDPOINT, the queues of all brokers.

    committed: the next offset to consume; None before the first commit, and the lag then begins
        where the group starts.
    bytes: approximate size of the lag in the log.
    behind: age of the oldest message of the lag.
    lost: number of messages that were deleted before they were consumed.
    beyond: how far committed is beyond the queue's end.

    Raises GroupNotFoundError.
    """
    with _opened_all(store) as opened:
        if group is None:
            return lag_table("Lag of all groups", lags_of_all(opened))
        at_any(opened, lambda session: session.admin.groups.get(group))
        return lag_table(f"Lag of {group}", lags_of_all(opened, group))


def lag_table(title: str, lags: Iterable[QueueLag]) -> Table:
    """Return lags as a table, one row for each queue."""
    places = ("group", "topic", "broker", "queue", "committed", "maximum")
    columns = (*places, "lag", "bytes", "behind", "lost", "beyond")
    rows = [
        (
            *(row.group, row.topic, row.broker, row.queue_id, row.committed, row.maximum),
            *(row.lag, row.bytes, timedelta(milliseconds=row.delay_ms), row.lost, row.beyond_end),
        )
        for row in lags
    ]
    return Table(title, columns, rows)


def peek(
    store: StoreOrPath = None, topic: str = "", n: int = 10, *, queue: int | None = None
) -> Table:
    """Return the newest `n` messages of a topic or of one queue, the newest last; at most 1,000.

    Raises StoreNotFoundError, TopicNotFoundError, QueueNotFoundError, InvalidInputError.
    """
    if not 1 <= n <= _MAX_PEEK:
        raise InvalidInputError(
            f"n is {n}.", remedy=f"Use 1 to {_MAX_PEEK}; `Store.messages` reads all messages."
        )
    topic = _named(topic)
    with _opened(store) as opened:
        messages = [
            message
            for has in opened.ranges(topic, queue)
            for message in opened.messages([replace(has, start=max(has.start, has.end - n))])
        ]
        messages.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
        columns = ("queue", "offset", "stored", "tags", "keys", "properties", "body")
        return Table(f"Newest messages of {topic}", columns, [_row(new) for new in messages[-n:]])


def _opened(store: StoreOrPath) -> AbstractContextManager[Session]:
    """Return the store, for a `with` block; a directory is opened read-only."""
    given = _given(store)
    return open_session(given) if isinstance(given, Place) else nullcontext(given)


def _opened_all(store: StoreOrPath) -> AbstractContextManager[list[Session]]:
    """Return the store, or the stores of all brokers that name servers know."""
    given = _given(store)
    return open_sessions(given) if isinstance(given, Place) else nullcontext([given])


def _given(store: StoreOrPath) -> Session | Place:
    """Return an open store, which stays open, or the place of one to open."""
    if isinstance(store, Session):
        return store
    if isinstance(store, Store):
        return session_of(store)
    path = os.fspath(store) if store else local_path(os.environ.get("PYROCKET_STORE", ""))
    place = Place(path=path) if path else broker_place()
    if not place.name:
        raise StoreNotFoundError(
            "no store is given.",
            remedy="Pass its directory or `notebook.at(endpoint)`, or set the environment variable"
            " PYROCKET_STORE or PYROCKET_ENDPOINT.",
            code="STORE_PATH",
        )
    return place


def at(
    endpoint: str = "",
    *,
    broker: str = "",
    tls: bool = False,
    ca: str = "",
    access_key: str = "",
    secret_key_file: str = "",
) -> Session:
    """Return a connection to a broker, to be passed instead of a store; close it at the end.

    With name servers, `broker` names one of their brokers. Omitted arguments are read from the
    environment, as those of the commands are: PYROCKET_ENDPOINT, PYROCKET_TLS, PYROCKET_SERVER_NAME
    and so on (BROKER.md). Raises TransportError, OptionError.

        with notebook.at("broker:8081", tls=True, access_key="ana") as broker:
            notebook.topics(broker)
    """
    given: dict[str, Any] = {"endpoint": endpoint, "broker": broker, "tls": tls, "ca": ca}
    given |= {"access_key": access_key, "secret_key_file": secret_key_file}
    known = {name: value for name, value in given.items() if value}
    return connect(replace(broker_place(), **known))


def _named(topic: str) -> str:
    if not topic:
        raise TopicNotFoundError(
            "no topic is given.", remedy="Pass its name: topic='orders'.", code="TOPIC_MISSING"
        )
    return topic


def _row(one: StoredMessage) -> tuple[object, ...]:
    stored = datetime.fromtimestamp(one.store_timestamp / 1000, timezone.utc)
    names = (name for name in one.properties if name not in RESERVED_PROPERTIES)
    properties = {name: one.properties[name] for name in names}
    keys = " ".join(one.keys)
    return one.queue_id, one.queue_offset, stored, one.tags, keys, properties, one.body


def _trend(session: Session, topic: TopicInfo) -> str:
    """Return one bar per interval; the interval with the most messages has full height."""
    if topic.first is None or topic.last is None:
        return ""
    queues = [queue for queue in topic.queues if queue.queue_id < topic.read_queues]
    places = [MessageQueue(topic.name, session.hello.broker, queue.queue_id) for queue in queues]
    first, last = (round(time.timestamp() * 1000) for time in (topic.first, topic.last))
    edges = [first + (last + 1 - first) * part // _TREND_PARTS for part in range(1, _TREND_PARTS)]
    ends = [sum(session.source.offsets_at(dict.fromkeys(places, edge)).values()) for edge in edges]
    begin, end = sum(queue.minimum for queue in queues), sum(queue.maximum for queue in queues)
    counts = [after - before for before, after in pairwise([begin, *ends, end])]
    most = max(*counts, 1)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
