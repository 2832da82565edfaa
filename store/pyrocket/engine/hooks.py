"""Callbacks by which services take part in what a writer does, without the writer knowing them.

The recovery hooks are known before the writer opens the store; the others are created when the
writer first needs them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrocket.disk.shared_state import SharedState
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog

EVERYTHING_MAY_GO = 2**63 - 1
"""Returned by a `holds` callback that needs no record."""


class Hold(NamedTuple):
    """The lowest log offset still needed, and what needs it."""

    offset: int
    what: str


@dataclass(frozen=True)
class Recovered:
    """A store whose log and queues have just been recovered and agree.

    `page` is the shared state, with the last saved cursors of all services. `clean`: the last
    shutdown was clean.
    """

    log: CommitLog
    queues: QueueTable
    page: SharedState
    clean: bool


@dataclass(frozen=True)
class RecoveryHooks:
    """Called in this order.

    after_unclean_end: before a recovery, if the machine stopped while the store was in use; gets
        the store time in epoch ms.
    after_recovery: at the end of a recovery, which holds the store exclusively: each service makes
        its own files and cursors agree with the log. An error makes the recovery fail.
    before_cursor_save: before `cursors.json` is replaced: flushes what lies before the cursors.
    """

    after_unclean_end: Sequence[Callable[[int], None]] = ()
    after_recovery: Sequence[Callable[[Recovered], None]] = ()
    before_cursor_save: Sequence[Callable[[], None]] = ()


@dataclass
class Hooks:
    """Lists of callbacks, called in the order in which they were registered.

    after_section: outside the write lock, when this process has held it; must not wait, never
        raises.
    holds: the lowest log offset that has to stay when old files are deleted, by what is held
        there; called under the write lock, or by a preview without it.
    before_removal: under the write lock, before log files are deleted; given where the log will
        begin. What is still needed of the messages before is appended again here, or the deletion
        stopped by an error.
    queues_touched_by_cleanup: given the same by a preview, the queues (topic, queue id) to which
        `before_removal` would append.
    before_clean_shutdown: under the write lock, with no other writer present, before the store is
        shut down cleanly.
    leftovers: with the write lock or without, at intervals, whatever the retention: deletes what
        is no longer used; given whether the disk is too full for appends.
    """

    after_section: list[Callable[[], None]] = field(default_factory=list)
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
