"""`pyrocket snapshot DIR TARGET`: a copy of a store in use."""

import click

from pyrocket.cli.frame import OK, as_json, directory, exits, progress, show_json


@click.command()
@directory
@click.argument("target", type=click.Path())
@click.option("--read-only", is_flag=True, help="Take no lock in DIRECTORY, not even for a moment.")
@as_json
@exits
def snapshot(directory: str, target: str, read_only: bool, as_json: bool) -> int:
    """Copy the store in DIRECTORY, in use or not, to TARGET, which is missing or empty.

    Files that are full get a second name, so on one file system it takes little space and time.
    The copy holds everything up to one moment, opens as if closed then, and goes its own way.
    """
    from pyrocket.store import Store

    with (
        progress("snapshot", silent=as_json) as tell,
        Store.open(directory, read_only=read_only) as store,
    ):
        report = store.snapshot(target, tell)
    if as_json:
        names = ("log_end", "linked_files", "copied_files", "copied_bytes", "unlinkable")
        show_json(
            {"path": str(report.path), **{_camel(name): getattr(report, name) for name in names}}
        )
        return OK
    size = report.copied_bytes / 2**20
    click.echo(
        f"{report.path}: {report.linked_files} files linked, {report.copied_files} copied"
        f" ({size:,.1f} MiB); the log ends at {report.log_end}."
    )
    if report.unlinkable:
        click.echo(f"Not everything could be linked ({report.unlinkable}).", err=True)
    return OK


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
