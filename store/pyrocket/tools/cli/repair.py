"""`pyrocket repair DIR`: mend what `pyrocket verify` finds."""

import click

from pyrocket.config import StoreConfig
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    agreed,
    as_json,
    broker_settings,
    directory,
    dry_run,
    exits,
    progress,
    show_json,
)
from pyrocket.tools.cli.verify import report_document, show_report
from pyrocket.tools.repair.plan import Action


@click.command()
@directory
@dry_run
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--cut",
    is_flag=True,
    help="Cut a damaged log at its first damaged place, and keep what is cut off in a file.",
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
    """Mend the store in DIRECTORY: say what is to be done, ask, and do it.

    Steps over damaged places of the log and keeps all other messages, rebuilds queues and the key
    index from the log, cuts a torn end of the log and keeps what it cuts, puts backups in the place
    of broken tables and topics back that the table lacks, and moves foreign files away. No other
    process may have the store open. Exits with 1 if something is left that cannot be mended. With
    --json it does not ask: give --yes, or it does nothing.
    """
    from pyrocket.tools.repair import run

    def agree(actions: tuple[Action, ...]) -> bool:
        if tell is not None:
            tell.put_away()
        if as_json:
            return yes
        _show_actions(actions, "I am going to" if yes else "To be done:")
        return yes or agreed("Do it?")

    with progress("repair", silent=as_json) as tell:
        done = run.repair(
            directory, dry_run=dry_run, agree=agree, progress=tell, config=config, cut=cut
        )
    if as_json:
        actions = [{"kind": action.kind, "what": action.what} for action in done.actions]
        show_json({"done": done.done, "actions": actions, "after": report_document(done.after)})
    else:
        if dry_run:
            _show_actions(done.actions, "To be done:")
        show_report(done.after)
    return OK if done.after.ok else FOUND


def _show_actions(actions: tuple[Action, ...], title: str) -> None:
    for action in actions:
        click.echo(f"{title} {action.what}", err=True)
