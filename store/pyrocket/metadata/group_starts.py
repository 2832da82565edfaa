"""`pyrocket/group_starts.json`: where groups start in queues without a committed offset.

A group has one start for each topic, stored at its first contact with the topic and then never
changed. It outlives the topic, and is deleted with the group.
"""

from collections.abc import Mapping

from pyrocket.base.arguments import is_whole
from pyrocket.base.cached import Cached
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error
from pyrocket.metadata.json_table import file_stamp
from pyrocket.values.consuming import GroupStart

MAX_STARTS, MAX_OF_GROUP = 200_000, 20_000
"""Maximum starts of all groups and of one group, so that a client cannot fill the file with topics
that do not exist. The file has at most 60 MiB."""

_TABLE = "starts"

_Starts = dict[str, dict[str, GroupStart]]


class GroupStartFile:
    """The file of one store, read only if it has changed. Raises StoreDamagedError if invalid."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch = layout.group_starts, layout.scratch
        self._load = Cached(lambda: file_stamp(self._path), self._parse)

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
                f"{self._path} has no room for the starts of the group {group!r}: it has"
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

    def _parse(self) -> _Starts:
        data = read_or_none(self._path)
        if data is None:
            return {}
        try:
            table = decode_own(self._path, data)[_TABLE]
            return {
                group: {topic: _start_of(**fields) for topic, fields in starts.items()}
                for group, starts in table.items()
            }
        except PARSE_ERRORS as error:
            raise StoreDamagedError(
                f"{self._path} cannot be parsed ({describe_error(error)}).",
                remedy="Restore it from a copy. Or remove it: then groups that have not committed"
                " any offset in a topic start there as new groups.",
            ) from error

    def _save(self, starts: _Starts) -> None:
        table = {
            group: {
                topic: {name: value for name, value in vars(start).items() if value is not None}
                for topic, start in of_group.items()
            }
            for group, of_group in starts.items()
        }
        replace_file(self._path, encode_own(self._path, {_TABLE: table}), self._scratch)


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
