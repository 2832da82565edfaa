"""JSON files: RocketMQ's in `config/`, each with a backup, and ours.

Each is read by what the store reads it with, so that a sound one is one that the store can use.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.metadata.delay_offsets import DelayOffsets
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.json_table import BY_HAND, EMPTY, MISSING, Content, JsonTable
from pyrocket.metadata.kept_retention import KeptRetention
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.metadata.subscriptions import Subscriptions
from pyrocket.metadata.topics import Topics
from pyrocket.services.sink.ledger import check_ledger
from pyrocket.tools.verify.finding import Findings, Severity, repair
from pyrocket.tools.verify.report import SIZES

_BACKUP = ".bak"
_USE_BACKUP = repair("puts the backup in its place; brokers use that anyway.")
_BEGIN_EMPTY = repair(
    "moves it to pyrocket/quarantine: without a backup it counts as an empty table anyway. If there"
    " is a copy of it, restore that instead."
)
_ENDS_AWAY = repair("moves it to pyrocket/quarantine; it is made anew.")

Look = Callable[[Layout], object]
"""Reads a file; raises StoreDamagedError where that cannot be."""


def check_config(
    layout: Layout, findings: Findings, read_cursors: Look, flaw: StoreDamagedError | None
) -> None:
    """Look at all JSON files; `read_cursors` reads what the services have saved.

    `flaw` is what is wrong with `store.json`.
    """
    if _is_folder(layout.config("x").parent, findings):
        for path, table in _tables(layout).items():
            _check_table(layout, path, table, findings)
    if not _is_folder(layout.own, findings):
        return
    for path, look in {
        layout.topic_ids: lambda: Topics(layout, lambda: 0).remembered(),
        layout.epochs: lambda: Epochs(layout).current,
        layout.retention: lambda: KeptRetention(layout).read(),
        layout.sink_ledger: lambda: check_ledger(layout),
        layout.cursors: lambda: read_cursors(layout),
    }.items():
        _check_own(layout, path, look, findings)
    if flaw is not None:
        code = SIZES if flaw.code == SIZES else "CONFIG_BROKEN"
        file = str(layout.identity.relative_to(layout.root))
        findings.add(code, Severity.ERROR, file, flaw.message, flaw.remedy)
    if not QueueEnds(layout).is_valid():
        what = "it cannot be parsed: queues that lost their last files cannot be detected by it."
        file = str(layout.queue_ends.relative_to(layout.root))
        findings.add("ENDS_DAMAGED", Severity.WARNING, file, what, _ENDS_AWAY)


def _check_own(layout: Layout, path: Path, look: Callable[[], object], findings: Findings) -> None:
    """Have one of our files read; what that raises is a finding."""
    try:
        look()
    except StoreDamagedError as error:
        file = str(path.relative_to(layout.root))
        findings.add("CONFIG_BROKEN", Severity.ERROR, file, error.message, error.remedy)


def _is_folder(folder: Path, findings: Findings) -> bool:
    if folder.is_dir() or not folder.exists():
        return True
    fix = "Move it away, and restore the folder from a backup. Without one `pyrocket repair` then"
    fix += " puts back what it can: topics, but neither what groups have consumed nor running"
    fix += " queries' checkpoints."
    what = "it is a file; a store has a folder there."
    findings.add("CONFIG_BROKEN", Severity.ERROR, folder.name, what, fix)
    return False


def _tables(layout: Layout) -> dict[Path, JsonTable[Any]]:
    """Return the tables that there are, or were: of some there is only the backup."""
    folder = layout.config("x").parent
    known: dict[str, JsonTable[Any]] = {
        "consumerOffset.json": GroupOffsets(layout).table,
        "delayOffset.json": DelayOffsets(layout).table,
        "subscriptionGroup.json": Subscriptions(layout, lambda: 0).table,
        "topics.json": Topics(layout, lambda: 0).table,
    }
    names = {path.name.removesuffix(_BACKUP) for path in folder.glob("*.json*")}
    return {
        folder / name: known.get(name) or JsonTable(layout, name.removesuffix(".json"), _any)
        for name in sorted(names)
        if name.endswith(".json")
    }


def _any(content: Content) -> Content:
    """Take whatever is a table: this one only RocketMQ reads."""
    return content


def _check_table(layout: Layout, path: Path, table: JsonTable[Any], findings: Findings) -> None:
    (main, backup), file = table.faults(), str(path.relative_to(layout.root))
    if main and not backup:
        what = f"it {main}. Its backup is whole."
        findings.add("CONFIG_FROM_BACKUP", Severity.WARNING, file, what, _USE_BACKUP)
    elif {main, backup} <= {EMPTY, MISSING}:
        for name, fault in ((file, main), (file + _BACKUP, backup)):
            if fault == EMPTY:
                what = "it is empty."
                findings.add("CONFIG_EMPTY", Severity.WARNING, name, what, _BEGIN_EMPTY)
    elif main:
        what = f"it {main}, and its backup {backup}."
        findings.add("CONFIG_BROKEN", Severity.ERROR, file, what, BY_HAND)
