"""`pyrocket store`: what concerns a store as a whole."""

import click

from pyrocket.tools.cli.clean import clean
from pyrocket.tools.cli.frame import (
    OK,
    CommandGroup,
    as_json,
    exits,
    path_option,
    show_json,
    with_path_option,
)
from pyrocket.tools.cli.repair import repair
from pyrocket.tools.cli.snapshot import snapshot
from pyrocket.tools.cli.store_set import retention_document, retention_text, set_
from pyrocket.tools.cli.target import StoreInfo, open_target
from pyrocket.tools.cli.verify import verify


@click.group(cls=CommandGroup)
def store() -> None:
    """Show a store, set how long it keeps messages, check, repair, clean and copy it."""


@store.command()
@path_option
@as_json
@exits
def info(directory: str, as_json: bool) -> int:
    """Show what a store is and what it holds, without changing anything."""
    found = open_target(directory).info()
    if as_json:
        show_json(_document(found))
        return OK
    for name, value in _lines(found):
        click.echo(f"{name:<18} {value}")
    return OK


def _document(found: StoreInfo) -> dict[str, object]:
    return {
        "path": found.path,
        "uuid": found.store_id,
        "brokerName": found.broker_name,
        "epoch": found.epoch,
        "topics": found.topics,
        "messages": found.messages,
        "groups": found.groups,
        "logStart": found.log_start,
        "logEnd": found.log_end,
        "logFileBytes": found.log_file_bytes,
        "messageDelayLevel": found.delay_levels,
        "retention": retention_document(found.retention),
    }


def _lines(found: StoreInfo) -> list[tuple[str, str]]:
    """Return what people read, as names and values."""
    size = (found.log_end - found.log_start) / 2**20
    return [
        ("path", found.path),
        ("uuid", found.store_id or "none: no pyrocket has written here"),
        ("broker name", found.broker_name),
        ("topics", f"{found.topics:,}"),
        ("messages", f"{found.messages:,}"),
        ("consumer groups", f"{found.groups:,}"),
        ("log", f"{size:,.1f} MiB, offsets {found.log_start} to {found.log_end}"),
        ("log files of", f"{found.log_file_bytes / 2**20:,.1f} MiB"),
        ("delay levels", found.delay_levels),
        ("messages kept", retention_text(found.retention)),
        ("recoveries", f"{found.epoch} that may have cut the log"),
    ]


store.add_command(set_)
for command in (clean, repair, snapshot, verify):
    store.add_command(with_path_option(command))
