"""`pyrocket store clean`: delete old messages by hand."""

from datetime import datetime

import click

from pyrocket.base.arguments import counted, format_size
from pyrocket.disk.file_queue import file_name
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    as_json,
    confirmed,
    dry_run,
    exits,
    show_json,
    size,
    yes,
)
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.values.admin import CleanReport


@click.command()
@place_options
@click.option("--hours", type=click.FloatRange(min=0), help="Keep messages younger than this.")
@click.option(
    "--total-bytes", type=size, help="Keep at most this many bytes of the log, such as 10g."
)
@yes
@dry_run
@as_json
@exits
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
        show_json(_document(report))
    elif is_agreed or dry_run:
        _show(report)
    return OK if is_agreed or dry_run else FOUND


def deleted(report: CleanReport) -> str:
    """Return what a cleaning deletes, for a question."""
    files = counted(len(report.removals), "log file")
    text = f"{counted(report.messages, 'message')} in {files} ({format_size(report.bytes)})"
    if report.staged_files:
        text += f" and {counted(report.staged_files, 'file')} of rows that were never published"
    return text


def _document(report: CleanReport) -> dict[str, object]:
    return {
        "dryRun": report.dry_run,
        "logFiles": [
            {"name": file_name(removal.file.start), "reason": removal.reason}
            for removal in report.removals
        ],
        "bytes": report.bytes,
        "messages": report.messages,
        "keptFiles": [
            {"name": file_name(one.file.start), "heldBy": one.held_by} for one in report.kept
        ],
        "keptBytes": report.kept_bytes,
        "queueFiles": report.queue_files,
        "indexFiles": report.index_files,
        "logStart": report.log_start,
        "stagedFiles": report.staged_files,
        "stagedBytes": report.staged_bytes,
    }


def _show(report: CleanReport) -> None:
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
