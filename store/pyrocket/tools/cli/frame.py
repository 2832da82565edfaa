"""Shared parts of all commands: store paths, `--json`, exit codes, errors, and progress bars.

Exit codes: 0 success, 1 findings or nothing found, 2 error, including wrong usage, 130 Ctrl-C, 141
standard output was closed by its reader (`| head`). With `--json`, exactly one JSON document is
written to standard output.

Commands of a group (`pyrocket topic list`) take the store as `--path DIRECTORY` or as `--endpoint
HOST:PORT`; see `place`. `repair`, `snapshot` and `verify` work on files, and take the store's
directory as an argument.
"""

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from typing import Any, NoReturn

import click

from pyrocket.base.arguments import parse_size
from pyrocket.base.config import StoreConfig
from pyrocket.errors import PyrocketError

OK, FOUND, FAILED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

ANY_WIDTH = 1_000_000
_MAX_SIZE = 2**63 - 1

_Progress = Callable[[int, int, str], None]

directory = click.argument("directory", type=click.Path(readable=False))


def _refuse_endpoint(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None and not ctx.resilient_parsing:
        raise click.UsageError(
            f"`{ctx.command_path}` works on the files of a store: run it on the broker's machine,"
            " without --endpoint.",
            ctx,
        )


files_only = click.option(
    "--endpoint", hidden=True, expose_value=False, is_eager=True, callback=_refuse_endpoint
)
"""Rejects `--endpoint` in commands that only work on a directory."""
dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")

SUGGESTION = "Did you mean"
"""The beginning of a remedy with the nearest name."""

_NUMBER = click.IntRange(min=1)


def size(text: str) -> int:
    """Parse an option such as `1048576`, `64m` or `10g` to bytes; for the option's `type`."""
    value = parse_size(text)
    if value is None or value > _MAX_SIZE:
        raise click.BadParameter(f"{text!r} is not a size such as 1048576, 512k, 64m or 10g.")
    return value


def broker_settings(command: Callable[..., int]) -> Callable[..., int]:
    """Add options for broker settings that are not saved in the store; passed as `config`."""
    text = "The broker's {}, if it is not known from the store."
    slots = click.option("--index-slots", type=_NUMBER, help=text.format("maxHashSlotNum"))
    items = click.option("--index-items", type=_NUMBER, help=text.format("maxIndexNum"))

    levels = click.option(
        "--delay-levels",
        metavar="LEVELS",
        help="The broker's messageDelayLevel, such as '1s 5s 10s', if it is not the default.",
    )

    @functools.wraps(command)
    def run(
        index_slots: int | None, index_items: int | None, delay_levels: str | None, **options: Any
    ) -> int:
        if (index_slots is None) != (index_items is None):
            raise click.UsageError("Use --index-slots and --index-items together.")
        config = None
        if index_slots is not None and index_items is not None:
            config = StoreConfig(index_slots=index_slots, index_items=index_items)
        if delay_levels is not None:
            config = replace(config or StoreConfig(), delay_levels=delay_levels)
        return command(config=config, **options)

    return slots(items(levels(run)))


def exits(command: Callable[..., int]) -> Callable[..., None]:
    """Exit with the command's result; report an error with its remedy."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            status = command(*arguments, **options)
        except PyrocketError as error:
            fail(error.code, error.message, error.remedy, as_json=options.get("as_json", False))
        except BrokenPipeError:
            raise  # Standard output was closed: `LazyCommands` exits without a message.
        except OSError as error:
            fail("OS_ERROR", str(error), "", as_json=options.get("as_json", False))
        else:
            raise SystemExit(status)

    return run


def exits_with_json(command: Callable[..., int]) -> Callable[..., None]:
    """Add `--json`, and exit as with `exits`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    return option(exits(command))


@contextmanager
def advising(remedies: Mapping[str, str]) -> Iterator[None]:
    """Replace the remedies of errors with these codes, but keep a suggested name."""
    try:
        yield
    except PyrocketError as error:
        if error.code not in remedies:
            raise
        remedy = remedies[error.code]
        if error.remedy.startswith(SUGGESTION):
            remedy = f"{error.remedy} {remedy}"
        raise type(error)(error.message, remedy=remedy, code=error.code) from error


def agreed(question: str) -> bool:
    """Ask on standard error; if no answer can be read, fail with a remedy that names `--yes`."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        if not isinstance(error.__cause__ or error.__context__, EOFError):
            raise
        click.echo(err=True)
        remedy = "Use --yes to skip the question."
        fail(
            "NO_ANSWER",
            "no answer was read from standard input; nothing was done.",
            remedy,
            as_json=False,
        )


def confirmed(question: str, *, yes: bool, as_json: bool) -> bool:
    """Return whether to delete something: ask, unless `--yes` or `--json` was given.

    With `--json` there is no prompt, and without `--yes` the answer is no.
    """
    return yes or (not as_json and agreed(question))


_FLAGS = {
    "path": "--path",
    "endpoint": "--endpoint",
    "endpoint.ca": "--ca",
    "endpoint.tls": "--tls",
    "endpoint.serverName": "--server-name",
    "accessKey": "--access-key",
    "secretKey": "--secret-key-file",
    "namesrv": "--namesrv",
    "brokerAddresses": "--broker-addresses",
}
"""Spark's option in the errors of a broker's clients → the flag of the commands."""


def with_flags(text: str) -> str:
    """Return a text that names flags of the commands instead of Spark's options."""
    for option, flag in _FLAGS.items():
        text = text.replace(f"`{option}`", f"`{flag}`")
    return text


def fail(code: str, message: str, remedy: str, *, as_json: bool, status: int = FAILED) -> NoReturn:
    """Print an error and its remedy, and exit."""
    message, remedy = with_flags(message), with_flags(remedy)
    if as_json:
        show_json({"error": {"code": code, "message": message, "remedy": remedy}})
    else:
        click.echo(f"Error [{code}]: {message}", err=True)
        if remedy:
            click.echo(remedy, err=True)
    raise SystemExit(status)


def show_json(document: dict[str, Any]) -> None:
    """Print the JSON document of a command."""
    click.echo(json.dumps(document, indent=2))


def show_verdicts(rows: Iterable[tuple[str, str, str, str, str]]) -> None:
    """Print a table of verdicts: each with its colour, a name, what was found and the remedy.

    In a terminal, long lines are wrapped; elsewhere they are not.
    """
    # Importing rich takes a second, which JSON does not need.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for verdict, colour, name, found, remedy in rows:
        text = Text(found)
        if remedy:
            text.append(f"\n{remedy}", style="bold")
        table.add_row(Text(verdict, style=colour), Text(name), text)
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    wide = Console(file=StringIO(), width=ANY_WIDTH, color_system=None)
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


class ProgressBar:
    """A progress bar on standard error, shown from the first call until `put_away`."""

    def __init__(self, title: str) -> None:
        # These imports take a second.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        text = TextColumn("{task.description}")
        parts = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Bar(*parts, console=Console(stderr=True), transient=True)
        self._title, self._task = title, self._bar.add_task(title, total=None)
        self._bar.start()

    def __call__(self, done: int, total: int, file: str) -> None:
        """Show the bytes done, the total, and the current file."""
        text = f"{self._title} {file}"
        self._bar.update(self._task, completed=done, total=total, description=text)
        self._bar.start()

    def put_away(self) -> None:
        """Clear the bar, for example before a question; the next call shows it again."""
        if self._bar.live.is_started:
            self._bar.stop()
            self._bar.reset(self._task)


@contextmanager
def progress(title: str, *, silent: bool) -> Iterator[ProgressBar | None]:
    """Yield a progress bar if standard error is a terminal, else None."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar(title)
    try:
        yield bar
    finally:
        bar.put_away()
