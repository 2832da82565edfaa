"""`pyrocket store`: show and clean a store, and set its retention."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import click

from pyrocket.base.arguments import counted, format_size
from pyrocket.base.config import Retention, parse_hours
from pyrocket.disk.file_queue import file_name
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    confirmed,
    dry_run,
    exits_with_json,
    show_json,
    size,
    yes,
)
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.target import AdminTarget
from pyrocket.values.admin import CleanReport

KEEPS_ALL = Retention(hours=None)
_NONE = "none"
_T = TypeVar("_T")


@click.group(cls=CommandGroup)
def store() -> None:
    """Show and clean a store, and set how long it keeps messages."""


@store.command()
@place_options
@click.option("--hours", type=click.FloatRange(min=0), help="Keep messages younger than this.")
@click.option(
    "--total-bytes", type=size, help="Keep at most this many bytes of the log, such as 10g."
)
@yes
@dry_run
@exits_with_json
def clean(
    place: GivenPlace,
    hours: float | None,
    total_bytes: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete the oldest log files, but never the last one.

    Asks first if messages would be deleted. The store may be in use. The queues' minimum offsets
    increase; offsets are never reused. Rows that were staged for a sink more than a week ago and
    never published are also deleted. With --json there is no prompt: without --yes, nothing is
    deleted.
    """
    if hours is None and total_bytes is None:
        raise click.UsageError("Set a limit: --hours, --total-bytes, or both.")
    target = place.target()
    report = target.clean(hours, total_bytes, True)
    is_agreed = not dry_run and (
        not report.removals  # Any writer deletes the staged rows without a question, too.
        or confirmed(f"Delete {deleted(report)}?", yes=yes, as_json=as_json)
    )
    if is_agreed:
        report = target.clean(hours, total_bytes, False)
    if as_json:
        show_json(_clean_document(report))
    elif is_agreed or dry_run:
        _show_clean(report)
    return OK if is_agreed or dry_run else FOUND


def deleted(report: CleanReport) -> str:
    """Return what a cleaning deletes, for a question."""
    files = counted(len(report.removals), "log file")
    text = f"{counted(report.messages, 'message')} in {files} ({format_size(report.bytes)})"
    if report.staged_files:
        text += f" and {counted(report.staged_files, 'file')} of rows that were never published"
    return text


def _clean_document(report: CleanReport) -> dict[str, object]:
    return {
        "dryRun": report.dry_run,
        "logFiles": [
            {"name": file_name(removal.file.start), "reason": removal.reason}
            for removal in report.removals
        ],
        "bytes": report.bytes,
        "messages": report.messages,
        "keptFiles": [
            {"name": file_name(kept.file.start), "heldBy": kept.held_by} for kept in report.kept
        ],
        "keptBytes": report.kept_bytes,
        "queueFiles": report.queue_files,
        "indexFiles": report.index_files,
        "logStart": report.log_start,
        "stagedFiles": report.staged_files,
        "stagedBytes": report.staged_bytes,
    }


def _show_clean(report: CleanReport) -> None:
    if report.dry_run:
        deleted, kept_verb, begins = "would be deleted", "would be kept", "would begin"
    else:
        deleted, kept_verb, begins = "deleted", "kept", "begins"
    for removal in report.removals:
        closed = datetime.fromtimestamp(removal.file.closed_ms / 1000).astimezone()
        name, reason = file_name(removal.file.start), removal.reason
        click.echo(f"commitlog/{name} {deleted} ({reason}; all before {closed:%Y-%m-%d %H:%M})")
    for kept in report.kept:
        click.echo(f"commitlog/{file_name(kept.file.start)} {kept_verb} (held by {kept.held_by})")
    click.echo(
        f"{counted(report.messages, 'message')} in {counted(len(report.removals), 'log file')},"
        f" {report.bytes:,} bytes; {counted(report.queue_files, 'queue file')},"
        f" {counted(report.index_files, 'index file')}."
        f" The log {begins} at {report.log_start}."
    )
    if report.kept:
        click.echo(
            f"Beyond the limits but {kept_verb}: {counted(len(report.kept), 'log file')},"
            f" {report.kept_bytes:,} bytes. Clean again once no file is held."
        )
    if report.staged_files:
        click.echo(
            f"{counted(report.staged_files, 'file')} of rows that were never published,"
            f" {report.staged_bytes:,} bytes, {deleted}."
        )


@store.command()
@place_options
@exits_with_json
def info(place: GivenPlace, as_json: bool) -> int:
    """Show a store's identity, sizes and contents. Nothing is changed."""
    found = place.target().info()
    if as_json:
        show_json({**found, "retention": retention_document(found["retention"])})
        return OK
    for name, value in _lines(found, "endpoint" if place.find().endpoint else "path"):
        click.echo(f"{name:<18} {value}")
    return OK


def _lines(found: dict[str, Any], place: str) -> list[tuple[str, str]]:
    """Return the information as names and displayed values; `place` is the name of the first."""
    start, end = found["logStart"], found["logEnd"]
    return [
        (place, found["path"]),
        ("uuid", found["uuid"] or "none: only RocketMQ has written here"),
        ("broker name", found["brokerName"]),
        ("topics", f"{found['topics']:,}"),
        ("messages", f"{found['messages']:,}"),
        ("consumer groups", f"{found['groups']:,}"),
        ("log", f"{(end - start) / 2**20:,.1f} MiB, offsets {start} to {end}"),
        ("log files of", f"{found['logFileBytes'] / 2**20:,.1f} MiB"),
        ("delay levels", found["messageDelayLevel"]),
        ("messages kept", retention_text(found["retention"])),
        ("epoch", f"{found['epoch']}: increases if the log may have been truncated"),
    ]


def hours_of_day(text: str) -> tuple[int, ...]:
    """Parse an option such as `4` or `4,16` to hours; for the option's `type`."""
    try:
        return parse_hours(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a list of hours from 0 to 23, such as 4 or 4,16."
        ) from None


def _or_none(parse: Callable[[str], _T]) -> Callable[[str], "_T | str"]:
    def limit(text: str) -> _T | str:
        return _NONE if text.lower() == _NONE else parse(text)

    return limit


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1
    if not 0 <= hours < float("inf"):
        raise click.BadParameter(f"{text!r} is not a number of hours, such as 72, or none.")
    return hours


@store.command("retention")
@place_options
@click.option(
    "--retention-hours",
    "hours",
    type=_or_none(_hours),
    help="Delete messages older than this; `none`: no limit.",
)
@click.option(
    "--retention-bytes",
    "total_bytes",
    type=_or_none(size),
    help="Delete the oldest messages while the log is larger, such as 100g; `none`: no limit.",
)
@click.option(
    "--clean-time",
    "at_hours",
    type=hours_of_day,
    help="The hours of the day at which expired messages are deleted, such as 4 or 4,16.",
)
@yes
@dry_run
@exits_with_json
def retention(
    place: GivenPlace,
    hours: float | str | None,
    total_bytes: int | str | None,
    at_hours: tuple[int, ...] | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Show or set how long a store keeps messages. Omitted settings are not changed.

    Asks first if messages that are kept now will be deleted. Only entire log files are deleted, and
    never the last one. With any limit, the oldest files are also deleted while the disk is more
    than 85 % full. All writers apply the setting; writers that already have the store open apply it
    within ten seconds. With --json there is no prompt: without --yes, a setting that deletes
    messages is not changed.
    """
    target = place.target()
    with target.admin() as admin:
        current = admin.retention
    if hours is None and total_bytes is None and at_hours is None:
        _show_retention(target, current, as_json=as_json)
        return OK
    known = current or KEEPS_ALL
    wanted = replace(
        known,
        hours=_picked(hours, known.hours),
        total_bytes=_picked(total_bytes, known.total_bytes),
        at_hours=_picked(at_hours, known.at_hours),
    )
    keeps_all = wanted.hours is None and wanted.total_bytes is None
    if keeps_all and at_hours is not None:
        raise click.UsageError("--clean-time needs a limit: also give --retention-hours.")
    new = None if keeps_all else wanted
    report = _newly_deleted(target, current, new)
    changes = not dry_run and (
        report is None or confirmed(f"Delete {_losses(report)}?", yes=yes, as_json=as_json)
    )
    if changes:
        with target.admin(write=True) as admin:
            admin.set_retention(new)
    if as_json or changes or dry_run:
        shown = new if changes or dry_run else current
        more = {"changed": changes, "messages": report.messages} if report else {}
        _show_retention(target, shown, as_json=as_json, **more)
    if report and dry_run and not as_json:
        click.echo(f"This would delete {_losses(report)}.")
    return OK if changes or dry_run else FOUND


def _newly_deleted(
    target: AdminTarget, known: Retention | None, wanted: Retention | None
) -> CleanReport | None:
    """Return what a new retention deletes; None if the known one deletes it already."""
    if wanted is None:
        return None
    report = replace(target.clean(wanted.hours, wanted.total_bytes, True), staged_files=0)
    if known is not None:
        before = target.clean(known.hours, known.total_bytes, True)
        return report if len(before.removals) < len(report.removals) else None
    return report if report.removals or report.disk_bytes else None


def _losses(report: CleanReport) -> str:
    limits = f"{deleted(report)} beyond these limits" if report.removals else ""
    if report.disk_bytes <= report.bytes:
        return limits
    space = f"the oldest log files ({format_size(report.disk_bytes)}), because the disk is full"
    return f"{limits}, and {space}" if limits else space


def _show_retention(
    target: AdminTarget, shown: Retention | None, *, as_json: bool, **more: object
) -> None:
    if as_json:
        show_json({"path": target.place.name, "retention": retention_document(shown), **more})
    else:
        click.echo(f"messages kept: {retention_text(shown)}")


def _picked(given: Any, known: Any) -> Any:
    if given is None:
        return known
    return None if given == _NONE else given


def retention_document(retention: Retention | None) -> dict[str, object] | None:
    """Return the value for `--json`; null if all messages are kept."""
    if retention is None:
        return None
    return {
        "hours": retention.hours,
        "bytes": retention.total_bytes,
        "cleanTime": list(retention.at_hours),
    }


def retention_text(retention: Retention | None) -> str:
    if retention is None:
        return "all"
    parts = []
    if retention.hours is not None:
        times = ", ".join(f"{hour:02d}:00" for hour in retention.at_hours) or "no time"
        parts.append(f"{retention.hours:g} hours, deleted at {times} or as the disk fills up")
    if retention.total_bytes is not None:
        parts.append(f"at most {format_size(retention.total_bytes)} of log")
    return "; ".join(parts) or "as long as there is room on the disk"
