"""`pyrocket/role.json`: whether only a primary's log may change the store, and the store's term.

A process that opens a replica for writing would append to it, so that the logs of replica and
primary would differ. Therefore every writer looks for the file before it changes anything.

Each promotion of a replica increases the term. Of two brokers with the same store, the one with the
lower term was a primary before the other was promoted: no replica follows it any more.
"""

import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError, StoreReadOnlyError
from pyrocket.metadata.json_table import OwnFile

_REMEDY = "Restore it from a copy of the directory, or make the replica again."


@dataclass(frozen=True)
class Role:
    """The role of a store.

    Attributes:
        primary: The address of a replica's primary; empty for a store of its own.
        replica: The id by which the primary knows the replica.
        term: The number of promotions in the history of the store.
        is_behind: Whether the cursors of a replica may be much older than its log.
    """

    primary: str = ""
    replica: str = field(default_factory=lambda: uuid.uuid4().hex)
    term: int = 0
    is_behind: bool = False


class RoleFile:
    """The file of one store. Each call reads or writes the file."""

    def __init__(self, layout: Layout) -> None:
        self._file = OwnFile(layout.role, layout.scratch, lambda known: Role(**known), _REMEDY)
        self._root = layout.root

    def read(self) -> Role:
        """Return the role; without a file, that of a store of its own. Raises StoreDamagedError."""
        return self._file.read() or Role()

    def write(self, role: Role) -> None:
        """Set the role durably."""
        self._file.save(asdict(role))

    def change(self, **fields: Any) -> None:
        """Set fields of the role durably, if they are different."""
        role = self.read()
        if (changed := replace(role, **fields)) != role:
            self.write(changed)

    def refusal(self) -> StoreReadOnlyError | None:
        """Return the error for every change that does not come from the primary's log, if any."""
        primary = self.read().primary
        if not primary:
            return None
        return StoreReadOnlyError(
            f"{self._root} is a replica of {primary}: it can only be read.",
            remedy=f"Write to {primary}. If it is lost: `pyrocket broker promote`. For a copy that"
            " is a store of its own: `pyrocket snapshot`.",
            code="REPLICA_READ_ONLY",
        )


def check_terms(primary: int, replica: int) -> None:
    """Raise InvalidInputError (PRIMARY_FENCED) if a primary has an older term than its replica."""
    if primary < replica:
        raise InvalidInputError(
            f"the primary has the term {primary}, but its replica has {replica}: another replica"
            " was promoted.",
            remedy="Start the broker with the older term with --replica-of the promoted one.",
            code="PRIMARY_FENCED",
        )
