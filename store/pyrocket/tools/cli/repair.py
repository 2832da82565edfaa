"""`pyrocket repair DIR`: fix what `pyrocket verify` finds."""

import click

from pyrocket.base.config import StoreConfig
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    agreed,
    as_json,
    broker_settings,
    directory,
    dry_run,
    exits,
    files_only,
    progress,
    show_json,
    yes,
)
from pyrocket.tools.cli.verify import report_document, show_report
from pyrocket.tools.repair.plan import Action


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
@as_json
@exits
@broker_settings
def repair(
    directory: str,
    dry_run: bool,
    yes: bool,
    cut: bool,
    as_json: bool,
    config: StoreConfig | None,
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
