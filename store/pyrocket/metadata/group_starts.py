"""`pyrocket/group_starts.json`: where groups start in queues without a committed offset.

A group has one start for each topic, stored at its first contact with the topic and then never
changed. It outlives the topic, and is deleted with the group.
"""

from collections.abc import Mapping
from typing import Any

from pyrocket.base.arguments import is_whole
from pyrocket.base.cached import Cached
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreUnavailableError
from pyrocket.metadata.json_table import OwnFile
from pyrocket.values.consuming import GroupStart

MAX_STARTS, MAX_OF_GROUP = 200_000, 20_000
"""Maximum starts of all groups and of one group, so that a client cannot fill the file with topics
that do not exist. The file has at most 60 MiB."""

_TABLE = "starts"
_REMEDY = (
    "Restore it from a copy. Or remove it: then groups that have not committed any offset in a"
    " topic start there as new groups."
)

_Starts = dict[str, dict[str, GroupStart]]


class GroupStartFile:
    """The file of one store, read only if it has changed. Raises StoreDamagedError if invalid."""

    def __init__(self, layout: Layout) -> None:
        self._file = OwnFile(layout.group_starts, layout.scratch, _parse, _REMEDY)
        self._load = Cached(self._file.stamp, lambda: self._file.read() or {})

    def all(self) -> Mapping[str, Mapping[str, GroupStart]]:
        """Return all starts by group and topic."""
        return self._load()

    def add(self, group: str, starts: Mapping[str, GroupStart]) -> None:
        """Store the starts of a group in topics without one, durably. Requires the write lock.

        Raises StoreUnavailableError (GROUP_STARTS_FULL).
        """
        known = self._load()
        of_group = {**starts, **known.get(group, {})}
        if of_group == known.get(group, {}):
            return
        others = sum(len(by_topic) for name, by_topic in known.items() if name != group)
        if len(of_group) > MAX_OF_GROUP or others + len(of_group) > MAX_STARTS:
            raise StoreUnavailableError(
                f"{self._file.path} has no room for the starts of the group {group!r}: it has"
                f" {others + len(known.get(group, {}))} starts, {len(known.get(group, {}))} of them"
                f" of this group; the maximum is {MAX_STARTS}, and {MAX_OF_GROUP} of a group.",
                remedy="Delete groups that are not used: pyrocket group delete. Or subscribe to"
                " fewer topics.",
                code="GROUP_STARTS_FULL",
            )
        self._save({**known, group: of_group})

    def drop(self, group: str) -> None:
        """Delete the starts of a group, durably. Requires the write lock."""
        known = self._load()
        if group in known:
            self._save({name: starts for name, starts in known.items() if name != group})

    def truncate(self, end: int) -> None:
        """Lower starts after `end`, at which a recovery has truncated the log, durably.

        Otherwise messages that are stored there later would precede a start. Requires the write
        lock.
        """
        known = self._load()
        lowered = {
            group: {topic: _before(start, end) for topic, start in starts.items()}
            for group, starts in known.items()
        }
        if lowered != known:
            self._save(lowered)

    def _save(self, starts: _Starts) -> None:
        table = {
            group: {
                topic: {name: value for name, value in vars(start).items() if value is not None}
                for topic, start in of_group.items()
            }
            for group, of_group in starts.items()
        }
        self._file.save({_TABLE: table})


def _parse(content: Any) -> _Starts:
    return {
        group: {topic: _start_of(**fields) for topic, fields in starts.items()}
        for group, starts in content[_TABLE].items()
    }


def _before(start: GroupStart, end: int) -> GroupStart:
    offsets = start.log_offset, start.end_offset
    log_offset, end_offset = (offset if offset is None else min(offset, end) for offset in offsets)
    return GroupStart(log_offset, start.time_ms, end_offset)


def _start_of(
    log_offset: int | None = None, time_ms: int | None = None, end_offset: int | None = None
) -> GroupStart:
    """Return a stored start. Raises one of `PARSE_ERRORS`."""
    start = GroupStart(log_offset, time_ms, end_offset)
    given = [value for value in (log_offset, time_ms, end_offset) if value is not None]
    if not given or not all(is_whole(value, -(2**63), 2**63 - 1) for value in given):
        raise ValueError(f"no group starts at {start}")
    return start
