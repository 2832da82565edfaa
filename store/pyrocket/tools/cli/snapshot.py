"""`pyrocket snapshot DIR TARGET`: copy a store, even in use."""

import errno
from typing import TYPE_CHECKING

import click

from pyrocket.base.arguments import counted
from pyrocket.errors import StoreLockedError, StorePermissionError, StoreUnavailableError
from pyrocket.tools.cli.frame import OK, directory, exits_with_json, files_only, progress, show_json

if TYPE_CHECKING:
    from pyrocket.store import Store


@click.command()
@directory
@files_only
@click.argument("target", type=click.Path())
@click.option("--read-only", is_flag=True, help="Take no lock in DIRECTORY.")
@exits_with_json
def snapshot(directory: str, target: str, read_only: bool, as_json: bool) -> int:
    """Copy the store in DIRECTORY, even if in use, to TARGET. TARGET must be missing or empty.

    Full files are hard-linked, so on one file system a snapshot takes little space and time. The
    copy is an independent store with all messages up to one moment, as after a clean shutdown.
    """
    with (
        progress("snapshot", silent=as_json) as bar,
        _open(directory, read_only=read_only) as store,
    ):
        report = store.snapshot(target, bar)
    if as_json:
        files = {"linkedFiles": report.linked_files, "copiedFiles": report.copied_files}
        copied = {"copiedBytes": report.copied_bytes, "unlinkable": report.unlinkable}
        show_json({"path": str(report.path), "logEnd": report.log_end, **files, **copied})
        return OK
    size = report.copied_bytes / 2**20
    click.echo(
        f"{report.path}: {counted(report.linked_files, 'file')} linked,"
        f" {report.copied_files:,} copied ({size:,.1f} MiB); the log ends at {report.log_end}."
    )
    if report.unlinkable:
        click.echo(f"Some files could not be linked ({report.unlinkable}).", err=True)
    return OK


def _open(directory: str, *, read_only: bool) -> "Store":
    from pyrocket.store import Store

    try:
        return Store.open(directory, read_only=read_only)
    except StoreUnavailableError as error:
        is_replica = error.code == "REPLICA_READ_ONLY"
        if not read_only and (is_replica or isinstance(error, StoreLockedError)):
            return Store.open(directory, read_only=True)  # A broker may have it open.
        is_mounted_so = getattr(error.__cause__, "errno", None) == errno.EROFS
        if read_only or not (is_mounted_so or isinstance(error, StorePermissionError)):
            raise
        remedy = f"Use --read-only to write nothing there. Or: {error.remedy}"
        raise type(error)(error.message, remedy=remedy, code=error.code) from error
