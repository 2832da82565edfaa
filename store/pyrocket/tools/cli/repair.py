"""`pyrocket verify DIR`: check a store; `pyrocket repair DIR`: fix what it finds."""

from dataclasses import asdict
from typing import Any

import click

from pyrocket.base.arguments import counted
from pyrocket.base.config import StoreConfig
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    agreed,
    broker_settings,
    directory,
    dry_run,
    exits_with_json,
    files_only,
    progress,
    show_json,
    show_verdicts,
    yes,
)
from pyrocket.tools.repair.plan import Action
from pyrocket.tools.verify.report import Report, Severity


@click.command()
@directory
@files_only
@exits_with_json
@broker_settings
def verify(directory: str, as_json: bool, config: StoreConfig | None) -> int:
    """Check the store in DIRECTORY, even if in use. Nothing is changed.

    Checks every record and its checksum, compares queues and key index with the log, and checks all
    small files. Exits with 1 if a repair is needed.
    """
    from pyrocket.tools.verify import verify as checking

    with progress("verify", silent=as_json) as bar:
        report = checking.verify(directory, bar, config=config)
    if as_json:
        show_json(report_document(report))
    else:
        show_report(report)
    return OK if report.ok else FOUND


_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}


def report_document(report: Report) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "path": str(report.path),
        "messages": report.messages,
        "entries": report.entries,
        "queues": report.queues,
        "logStart": report.log_start,
        "logEnd": report.log_end,
        "counts": report.counts,
        "findings": [*map(asdict, report.findings)],
    }


def show_report(report: Report) -> None:
    """Print a table of findings, and a summary of the check."""
    rows = [
        (one.severity.value, _COLOURS[one.severity], one.code, f"{one.where}: {one.what}", one.fix)
        for one in report.findings
    ]
    if rows:
        show_verdicts(rows)
    more = sum(report.counts.values()) - len(report.findings)
    if more:
        click.echo(f"… and {more:,} more with these codes.")
    click.echo(summary(report))


def summary(report: Report) -> str:
    size = (report.log_end - report.log_start) / 2**20
    verdict = "all is well" if report.ok else counted(sum(report.counts.values()), "finding")
    entries = "1 entry" if report.entries == 1 else f"{report.entries:,} entries"
    return (
        f"{report.path}: {counted(report.messages, 'message')} in {size:,.1f} MiB of log,"
        f" {entries} in {counted(report.queues, 'queue')}: {verdict}."
    )


@click.command()
@directory
@files_only
@dry_run
@yes
@click.option(
    "--cut",
    is_flag=True,
    help="Truncate a damaged log at its first damaged byte, and save the removed bytes in a file.",
)
@exits_with_json
@broker_settings
def repair(
    directory: str, dry_run: bool, yes: bool, cut: bool, as_json: bool, config: StoreConfig | None
) -> int:
    """Repair the store in DIRECTORY: show the actions, ask for confirmation, and apply them.

    Skips damaged parts of the log and keeps all other messages, rebuilds queues and the key index
    from the log, truncates a torn end of the log and keeps a copy of it, replaces broken tables by
    their backups, adds missing topics to the topic table, and moves foreign files away. No other
    process may have the store open. Exits with 1 if some findings cannot be repaired. With --json
    there is no prompt: without --yes, nothing is done.
    """
    from pyrocket.tools.repair import run

    def agree(actions: tuple[Action, ...]) -> bool:
        if bar is not None:
            bar.put_away()
        if as_json:
            return yes
        _show_actions(actions, "Doing:" if yes else "To do:")
        return yes or agreed("Do it?")

    with progress("repair", silent=as_json) as bar:
        done = run.repair(
            directory, dry_run=dry_run, agree=agree, progress=bar, config=config, cut=cut
        )
    if as_json:
        actions = [{"kind": action.kind, "what": action.what} for action in done.actions]
        show_json({"done": done.done, "actions": actions, "after": report_document(done.after)})
    else:
        if dry_run:
            _show_actions(done.actions, "To do:")
        show_report(done.after)
    return OK if done.after.ok else FOUND


def _show_actions(actions: tuple[Action, ...], title: str) -> None:
    for action in actions:
        click.echo(f"{title} {action.what}", err=True)
