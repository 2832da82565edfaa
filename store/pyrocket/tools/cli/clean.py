"""`pyrocket clean DIR`: delete old messages by hand."""

from datetime import datetime
from typing import Any

import click

from pyrocket.disk.layout import file_name
from pyrocket.engine.retention_rules import CleanReport
from pyrocket.tools.cli.frame import (
    OK,
    as_json,
    directory,
    dry_run,
    exits,
    files_only,
    show_json,
    size,
)
from pyrocket.tools.cli.place import GivenPlace, place_options

_hours = click.option(
    "--hours", type=click.FloatRange(min=0), help="Keep messages younger than this."
)
_total_bytes = click.option(
    "--total-bytes", type=size, help="Keep at most this many bytes of the log, such as 10g."
)


@click.command()
@directory
@files_only
@_hours
@_total_bytes
@dry_run
@as_json
@exits
def clean(directory: str, as_json: bool, **limits: Any) -> int:
    """Delete the oldest log files of the store in DIRECTORY, but never the last one.

    The store may be in use. The queues' minimum offsets increase; offsets are never reused. Rows
    that were staged for a sink more than a week ago and never published are also deleted.
    """
    return _clean(GivenPlace({"path": directory}, None), as_json, **limits)


@click.command("clean", help=(clean.help or "").replace(" of the store in DIRECTORY", ""))
@place_options
@_hours
@_total_bytes
@dry_run
@as_json
@exits
def clean_store(place: GivenPlace, as_json: bool, **limits: Any) -> int:
    """Delete the oldest log files of a store, in its directory or at its broker."""
    return _clean(place, as_json, **limits)


def _clean(
    place: GivenPlace, as_json: bool, hours: float | None, total_bytes: int | None, dry_run: bool
) -> int:
    if hours is None and total_bytes is None:
        raise click.UsageError("Set a limit: --hours, --total-bytes, or both.")
    report = place.target().clean(hours, total_bytes, dry_run)
    if as_json:
        show_json(_document(report))
    else:
        _show(report)
    return OK


def _document(report: CleanReport) -> dict[str, object]:
    return {
        "dryRun": report.dry_run,
        "logFiles": [
            {"name": file_name(removal.file.start), "reason": removal.reason}
            for removal in report.removals
        ],
        "bytes": report.bytes,
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
        f"{len(report.removals)} log files, {report.bytes:,} bytes; {report.queue_files} queue and"
        f" {report.index_files} index files. The log {begins} at {report.log_start}."
    )
    if report.kept:
        click.echo(
            f"{len(report.kept)} log files, {report.kept_bytes:,} bytes, exceed the limits but"
            f" {'would be' if report.dry_run else 'are'} kept. Clean again once they are not held."
        )
    if report.staged_files:
        click.echo(
            f"{report.staged_files} files of rows that were never published,"
            f" {report.staged_bytes:,} bytes, {deleted}."
        )
