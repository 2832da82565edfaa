"""`Views`: plans views and reads their parts."""

from collections.abc import Iterator, Sequence
from typing import get_args

import pyarrow as pa

from pyrocket.base.arguments import check_text, check_texts, check_type
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.reader import Reader
from pyrocket.errors import InvalidInputError
from pyrocket.formats.record_columns import check_columns
from pyrocket.formats.system_topics import DLQ_PREFIX
from pyrocket.values.source import (
    LogPart,
    PendingRange,
    PendingRetryPart,
    RetryPart,
    TablePart,
    ViewName,
    ViewPart,
)
from pyrocket.views.commit_log import log_parts, read_log
from pyrocket.views.pending import VIEW_COLUMNS, PendingKind, PendingMessages
from pyrocket.views.retries import (
    pending_retry_parts,
    read_pending_retries,
    read_retries,
    retry_parts,
)
from pyrocket.views.tables import groups_table, topics_table

_VIEWS = get_args(ViewName)


@translating_methods
class Views:
    """Views of one store besides the messages of its topics. Never locks, never writes.

    The views are `commitlog`, every record of the log; `retry`, messages that consumers sent back,
    delivered or still pending; `dlq`, the dead letters; `groups`, one row per group and queue; and
    `topics`.
    """

    def __init__(self, reader: Reader, groups: Groups, pending: PendingMessages) -> None:
        self._reader, self._groups, self._pending = reader, groups, pending

    def plan(
        self,
        view: ViewName,
        *,
        topics: Sequence[str] = (),
        group: str = "",
        skips_damage: bool = False,
    ) -> list[ViewPart]:
        """Return the parts of the current state of a view.

        With `topics`, "commitlog" has only the records of these topics, and "topics" only their
        rows. With `skips_damage`, "commitlog" skips corrupt records. With `group`, "retry", "dlq"
        and "groups" show only this group. Raises GroupNotFoundError.
        """
        check_text(group=group)
        check_texts(topics=topics)
        if view not in _VIEWS:
            raise _unknown(view)
        if view == "commitlog":
            return [*log_parts(self._reader, tuple(topics), skips_damage=skips_damage)]
        if view in ("groups", "topics"):
            return [TablePart(view, group, tuple(topics) if view == "topics" else ())]
        parts: list[ViewPart] = [*retry_parts(self._reader, self._groups, view, group)]
        if view == "retry":
            parts += pending_retry_parts(self._reader, self._groups, self._pending, group)
        return parts

    def pending(self, kind: PendingKind) -> list[PendingRange]:
        """Return the ranges of all pending messages: "scheduled" or undecided "half" messages.

        `scan_pending` reads them.
        """
        return self._pending.plan(kind)

    def scan_pending(
        self,
        part: PendingRange,
        topics: Sequence[str],
        columns: Sequence[str] = ("topic", "body", "dueTimestamp"),
        *,
        verify_crc: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range for these topics (empty: all), a few MiB at a time.

        Columns: the columns of `Store.scan`, and `dueTimestamp` for scheduled messages. Topic and
        queue are the destination; the queue offset is the offset of the pending message. Raises the
        errors of `Store.scan`.
        """
        return self._pending.scan(part, topics, columns, verify_crc=verify_crc)

    def scan(
        self, part: ViewPart, columns: Sequence[str], *, verify_crc: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part in batches of a few MiB; the call checks the columns.

        Columns: `pyrocket.VIEW_COLUMNS`. Raises OffsetOutOfRangeError if messages have been
        deleted, StoreDamagedError, SchemaError, InvalidInputError (VIEW_UNKNOWN).
        """
        check_type(get_args(ViewPart), "Use a part that `plan` returned.", part=part)
        if isinstance(part, TablePart) and part.view not in ("groups", "topics"):
            raise _unknown(part.view)
        check_columns(columns, VIEW_COLUMNS[_view_of(part)])
        if isinstance(part, LogPart):
            return read_log(self._reader, part, columns)
        if isinstance(part, RetryPart):
            return read_retries(self._reader, part, columns, verify_crc=verify_crc)
        if isinstance(part, PendingRetryPart):
            return read_pending_retries(self._pending, part, columns, verify_crc=verify_crc)
        if part.view == "topics":
            table = topics_table(self._reader, part.topics)
        else:
            table = groups_table(self._reader, self._groups, part.group)
        return iter(table.select(list(columns)).to_batches())


def _unknown(view: str) -> InvalidInputError:
    return InvalidInputError(
        f"there is no view {view!r}.",
        remedy=f"Use one of {', '.join(_VIEWS)}.",
        code="VIEW_UNKNOWN",
    )


def _view_of(part: ViewPart) -> str:
    if isinstance(part, LogPart):
        return "commitlog"
    if isinstance(part, RetryPart):
        return "dlq" if part.topic.startswith(DLQ_PREFIX) else "retry"
    return part.view if isinstance(part, TablePart) else "retry"
