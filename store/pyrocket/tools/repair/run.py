"""Planning, having the store alone, doing, and looking again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike

from pyrocket.config import StoreConfig
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
from pyrocket.services.services import recovery_hooks
from pyrocket.tools.repair.plan import Action, is_beyond_repair, plan_repair
from pyrocket.tools.repair.steps import Steps
from pyrocket.tools.verify.report import Report
from pyrocket.tools.verify.verify import Progress, verify

_ALL = 10**9
_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class RepairReport:
    """What was done or, in a dry run, would be; and how the store is now."""

    actions: tuple[Action, ...]
    done: bool
    before: Report
    after: Report


Agree = Callable[[tuple[Action, ...]], bool]
"""Asked, with the store alone, whether the actions are to be taken."""


@translating
def repair(
    path: str | PathLike[str],
    *,
    dry_run: bool = False,
    agree: Agree | None = None,
    progress: Progress | None = None,
    config: StoreConfig | None = None,
    cut: bool = False,
) -> RepairReport:
    """Mend what can be mended, if `agree` says so. Idempotent.

    Damaged places of the log are stepped over: all other messages are kept. With `cut` the log is
    cut at the first of them.
    `config` tells slots and items of an index of which nothing else does; then they are noted.
    Raises StoreLockedError if others have the store open, StoreNotFoundError, and
    StoreUnavailableError for a disk that does not take it, or a user who may not.
    """
    layout = layout_of(path)
    check_directory(layout, create=False)
    config = config or StoreConfig()
    look = partial(verify, path, progress, most=_ALL, config=config)
    if dry_run:
        before = look()
        return RepairReport(plan_repair(before, cut=cut), False, before, before)
    check_fixed_names(layout)
    with _alone(layout):
        before = look()
        actions = plan_repair(before, cut=cut)
        if not actions or (agree is not None and not agree(actions)):
            return RepairReport(actions, False, before, before)
        Steps(layout, before, clock_at(layout.clock), config).run(actions)
    # The store cannot be opened for writing while the log lacks messages.
    between = look()
    if is_beyond_repair(between):
        return RepairReport(actions, True, before, between)
    _settle(layout, config)
    return RepairReport(actions, True, before, look())


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Have the store alone: nobody else has it open for writing. Raises StoreLockedError."""
    for folder in (layout.own, layout.scratch):
        io.make_directory(folder)
    turns, presence = WriteLock(layout.mutex, layout.turnstile, lambda: 0), None
    try:
        with turns.hold(_TIMEOUT_MS):
            presence = FileLock(layout.lock, content=b"lock")
            if not presence.try_lock():
                raise StoreLockedError(
                    f"{layout.root} is open in another process.",
                    remedy="Close it everywhere first; `pyrocket verify` works at any time.",
                )
            yield
    finally:
        if presence is not None:
            presence.close()
        turns.close()


def _settle(layout: Layout, config: StoreConfig) -> None:
    """Open the store and close it cleanly: queues, key index and checkpoint are complete then."""
    clock = clock_at(layout.clock)
    writer = Writer(layout, config, clock, recovery_hooks(layout, clock))
    try:
        with writer.exclusive():
            replace_file(layout.abort, b"", layout.scratch)
    finally:
        writer.close(clean=True)
