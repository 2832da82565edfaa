"""Runs a repair: plans it, locks the store, takes the actions, and checks the store again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike

from pyrocket.base.config import StoreConfig
from pyrocket.disk import io
from pyrocket.disk.clock_file import clock_at
from pyrocket.disk.io import replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, WriteLock
from pyrocket.disk.os_errors import translating
from pyrocket.disk.root_checks import check_fixed_names
from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreLockedError
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.metadata.role import RoleFile
from pyrocket.services.services import recovery_hooks
from pyrocket.tools.repair.plan import Action, is_beyond_repair, plan_repair
from pyrocket.tools.repair.steps import Steps
from pyrocket.tools.verify.report import Report
from pyrocket.tools.verify.verify import CheckProgress, verify

_ALL = 10**9
_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class RepairReport:
    """The actions taken, or planned by a dry run, with the reports before and after them."""

    actions: tuple[Action, ...]
    done: bool
    before: Report
    after: Report


Agree = Callable[[tuple[Action, ...]], bool]
"""Decides whether the actions are taken. Called while the store is locked exclusively."""


@translating
def repair(
    path: str | PathLike[str],
    *,
    dry_run: bool = False,
    agree: Agree | None = None,
    progress: CheckProgress | None = None,
    config: StoreConfig | None = None,
    cut: bool = False,
) -> RepairReport:
    """Fix what can be fixed, if `agree` returns True. Idempotent.

    Placeholders are written over damaged ranges of the log, so all other messages are kept; with
    `cut` the log is truncated at the first damaged range instead. `config` gives the numbers of
    slots and items of index files if the store does not determine them; these numbers are then
    saved. Raises StoreLockedError if another process has the store open, StoreNotFoundError, and
    StoreUnavailableError if the disk is full or read-only, or permissions are missing.
    """
    layout = layout_of(path)
    check_directory(layout, create=False)
    config = config or StoreConfig()
    check = partial(verify, path, progress, most=_ALL, config=config)
    if dry_run:
        before = check()
        return RepairReport(plan_repair(before, cut=cut), False, before, before)
    if (refusal := RoleFile(layout).refusal()) is not None:
        raise refusal  # A replica is made again.
    check_fixed_names(layout)
    with _exclusively(layout):
        before = check()
        actions = plan_repair(before, cut=cut)
        if not actions or (agree is not None and not agree(actions)):
            return RepairReport(actions, False, before, before)
        Steps(layout, before, clock_at(layout.clock), config).run(actions)
    # A writer cannot open a store whose log lacks files.
    between = check()
    if is_beyond_repair(between):
        return RepairReport(actions, True, before, between)
    _recover(layout, config)
    return RepairReport(actions, True, before, check())


@contextmanager
def _exclusively(layout: Layout) -> Iterator[None]:
    """Exclude all writers. Raises StoreLockedError if a writer has the store open."""
    for folder in (layout.own, layout.scratch):
        io.make_directory(folder)
    write_lock, session = WriteLock(layout.mutex, layout.turnstile, lambda: 0), None
    try:
        with write_lock.hold(_TIMEOUT_MS):
            session = FileLock(layout.lock, content=b"lock")
            if not session.try_lock():
                raise StoreLockedError(
                    f"{layout.root} is open in another process.",
                    remedy="Close it in all other processes; `pyrocket verify` needs no lock.",
                )
            yield
    finally:
        if session is not None:
            session.close()
        write_lock.close()


def _recover(layout: Layout, config: StoreConfig) -> None:
    """Recover the store and close it cleanly, with queues, key index and checkpoint complete."""
    clock = clock_at(layout.clock)
    writer = Writer(layout, config, clock, recovery_hooks(layout, clock))
    try:
        with writer.exclusive():
            replace_file(layout.abort, b"", layout.scratch)
    finally:
        writer.close(clean=True)
