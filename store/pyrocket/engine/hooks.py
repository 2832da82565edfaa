"""Callbacks through which services extend the writer, so that it does not depend on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrocket.disk.shared_state import SharedState
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.log.commit_log import CommitLog

EVERYTHING_MAY_GO = 2**63 - 1
"""The value that a `holds` callback returns if its service needs no record."""


class Hold(NamedTuple):
    """The lowest log offset that is still needed, and the records that need it."""

    offset: int
    what: str


@dataclass(frozen=True)
class Recovered:
    """A store whose log and queues have just been recovered.

    `page` is the shared state, which contains the last saved cursors of all services. `clean` is
    whether the last shutdown was clean.
    """

    log: CommitLog
    queues: QueueTable
    page: SharedState
    clean: bool


@dataclass(frozen=True)
class RecoveryHooks:
    """Callbacks of recovery and of checkpoints.

    after_unclean_end: called before a recovery if the machine stopped while the store was in use.
        The argument is the store time in epoch ms.
    after_recovery: called at the end of a recovery, with the store held exclusively. Each service
        makes its own files and cursors consistent with the log. An error fails the recovery.
    before_cursor_save: called before `cursors.json` is replaced. Flushes the service's own data.
    """

    after_unclean_end: Sequence[Callable[[int], None]] = ()
    after_recovery: Sequence[Callable[[Recovered], None]] = ()
    before_cursor_save: Sequence[Callable[[], None]] = ()


@dataclass
class Hooks:
    """Lists of callbacks, called in the order in which they were registered.

    after_section: called after this process has released the write lock. Must not block or raise.
    after_release: like `after_section`, but also called after services and after failed changes.
    holds: a map from a description of the needed records to a callback that returns the lowest log
        offset that must not be deleted. Called with the write lock held; a preview calls it without
        the lock.
    before_removal: called with the write lock before log files are deleted. The argument is the new
        start of the log. Re-appends the earlier messages that are still needed, or raises an error,
        which cancels the deletion.
    queues_touched_by_cleanup: called by a preview, with the same argument. Returns the queues
        (topic, queue id) to which `before_removal` would append.
    before_clean_shutdown: called with the write lock before a clean shutdown, while no other writer
        has the store open.
    leftovers: called at intervals, possibly without the write lock or a retention. Deletes unused
        files. The argument is whether the disk is too full for appends.
    """

    after_section: list[Callable[[], None]] = field(default_factory=list)
    after_release: list[Callable[[], None]] = field(default_factory=list)
    holds: dict[str, Callable[[], int]] = field(default_factory=dict)
    before_removal: list[Callable[[int], None]] = field(default_factory=list)
    queues_touched_by_cleanup: list[Callable[[int], set[tuple[str, int]]]] = field(
        default_factory=list
    )
    before_clean_shutdown: list[Callable[[], None]] = field(default_factory=list)
    leftovers: list[Callable[[bool], None]] = field(default_factory=list)

    def held_from(self) -> Hold:
        """Return the lowest log offset that any service still needs."""
        holds = (Hold(offset(), what) for what, offset in self.holds.items())
        return min(holds, default=Hold(EVERYTHING_MAY_GO, "nothing"))

    def moved_by(self, log_start: int) -> set[tuple[str, int]]:
        """Return the queues that grow when the log's start moves to `log_start`."""
        return set().union(*(queues(log_start) for queues in self.queues_touched_by_cleanup))
