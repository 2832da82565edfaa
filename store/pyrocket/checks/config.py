"""JSON files: RocketMQ's in `config/`, each with a backup, and ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyrocket.checks.finding import Findings, Severity, repair
from pyrocket.disk.durable import read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.formats.own_json import decode_own
from pyrocket.services.topics import Topics

_BACKUP = ".bak"
SIZES = "STORE_SIZES"


def check_config(layout: Layout, findings: Findings, flaw: StoreDamagedError | None = None) -> None:
    """Look at all JSON files; `flaw` is what is wrong with `store.json`."""
    for path in _tables(layout):
        data = read_or_none(path)
        if not data or not parses(data, _of_java):
            _report_table(layout, path, data, findings)
    without = {
        layout.topic_ids: " Or remove it: deleted topics' names then begin at 0 again.",
        layout.epochs: " Or remove it: deleted topics' names then begin at 0 again.",
        layout.sink_ledger: " Or remove it: batches whose messages are in the log stay known.",
        layout.cursors: " Or remove it: timers may then be delivered twice.",
    }
    for path, way_out in without.items():
        data = read_or_none(path)
        if data is not None and not parses(data, decode_own):
            fix = f"Restore {path.name} from a backup.{way_out}"
            what = "is no JSON, or does not fit its checksum."
            _add(layout, findings, "CONFIG_BROKEN", Severity.ERROR, path, what, fix)
    if not findings.counts["CONFIG_BROKEN"] and not findings.counts["CONFIG_FROM_BACKUP"]:
        _check_topics(layout, findings)
    if flaw is not None:
        code = SIZES if flaw.code == SIZES else "CONFIG_BROKEN"
        _add(layout, findings, code, Severity.ERROR, layout.identity, flaw.message, flaw.remedy)


def parses(data: bytes, loads: Callable[[bytes], Any]) -> bool:
    """Whether the bytes are JSON with an object or list at the top."""
    try:
        return isinstance(loads(data), dict | list)
    except ValueError:
        return False


def _of_java(data: bytes) -> Any:
    return fastjson.loads(data.decode())


def _tables(layout: Layout) -> list[Path]:
    """Return the tables that there are, or were: of some there is only the backup."""
    folder = layout.config("x").parent
    names = {path.name.removesuffix(_BACKUP) for path in folder.glob("*.json*")}
    return [folder / name for name in sorted(names) if name.endswith(".json")]


def _report_table(layout: Layout, path: Path, data: bytes | None, findings: Findings) -> None:
    what = "is missing." if data is None else "is empty." if not data else "is no JSON."
    backup = read_or_none(path.with_name(path.name + _BACKUP))
    if backup and parses(backup, _of_java):
        fix = repair("puts the backup in its place; brokers use that anyway.")
        what += " Its backup is whole."
        _add(layout, findings, "CONFIG_FROM_BACKUP", Severity.WARNING, path, what, fix)
    elif data:
        fix = f"Restore {path.name} from a backup, or correct it by hand."
        _add(layout, findings, "CONFIG_BROKEN", Severity.ERROR, path, what, fix)


def _check_topics(layout: Layout, findings: Findings) -> None:
    try:
        Topics(layout, lambda: 0).all()
    except StoreDamagedError as error:
        path = layout.config("topics")
        fix = error.remedy or "Restore it from a backup, or correct it by hand."
        _add(layout, findings, "CONFIG_BROKEN", Severity.ERROR, path, error.message, fix)


def _add(
    layout: Layout,
    findings: Findings,
    code: str,
    severity: Severity,
    path: Path,
    what: str,
    fix: str,
) -> None:
    findings.add(code, severity, str(path.relative_to(layout.root)), what, fix)
