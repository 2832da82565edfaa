"""`pyrocket/role.json`: says that the store is a replica, which only its primary's log may change.

A process that opens the directory for writing would append to it, so that the logs of replica and
primary would differ. Therefore every writer looks for the file before it changes anything.
"""

import uuid
from dataclasses import asdict, dataclass, field

from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError, StoreReadOnlyError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS


@dataclass(frozen=True)
class Role:
    """The role of a replica: its primary's address, and the id by which the primary knows it."""

    primary: str
    replica: str = field(default_factory=lambda: uuid.uuid4().hex)


class RoleFile:
    """The file of one store. Each call reads or writes the file."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch, self._root = layout.role, layout.scratch, layout.root

    def read(self) -> Role | None:
        """Return the role; None for a store that is no replica. Raises StoreDamagedError."""
        data = read_or_none(self._path)
        try:
            return None if data is None else Role(**decode_own(self._path, data))
        except (TypeError, *PARSE_ERRORS) as error:
            raise StoreDamagedError(
                f"{self._path} cannot be read: {error}.",
                remedy="Restore it from a copy of the directory, or make the replica again.",
            ) from error

    def write(self, role: Role) -> None:
        """Make the directory that of a replica, durably."""
        replace_file(self._path, encode_own(self._path, asdict(role)), self._scratch)

    def refusal(self) -> StoreReadOnlyError | None:
        """Return the error for every change that does not come from the primary's log, if any."""
        role = self.read()
        if role is None:
            return None
        return StoreReadOnlyError(
            f"{self._root} is a replica of {role.primary}: it can only be read.",
            remedy=f"Write to {role.primary}. For a store of its own, take a snapshot of the"
            " replica: `pyrocket snapshot`.",
            code="REPLICA_READ_ONLY",
        )
