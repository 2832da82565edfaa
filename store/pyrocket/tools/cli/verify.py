"""`pyrocket verify DIR`: look whether everything is as it should be."""

import click

from pyrocket.config import StoreConfig
from pyrocket.tools.cli.findings import report_document, show_report
from pyrocket.tools.cli.frame import (
    FOUND,
    OK,
    as_json,
    broker_settings,
    directory,
    exits,
    progress,
    show_json,
)


@click.command()
@directory
@as_json
@exits
@broker_settings
def verify(directory: str, as_json: bool, config: StoreConfig | None) -> int:
    """Check the store in DIRECTORY without changing anything, in use or not.

    Looks at every record and its checksum, at the queues and the key index that belong to them,
    and at the small files. Exits with 1 if something should be mended.
    """
    from pyrocket.tools.verify import verify as checking

    with progress("verify", silent=as_json) as tell:
        report = checking.verify(directory, tell, config=config)
    if as_json:
        show_json(report_document(report))
    else:
        show_report(report)
    return OK if report.ok else FOUND
