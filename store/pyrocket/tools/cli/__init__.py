"""The command line `pyrocket`: a group whose commands are imported on demand.

A command is an entry point of the group `pyrocket.commands`. The commands of this distribution are
also listed here by name, so that they work in a checkout on PYTHONPATH without an installation;
this package never imports the connector.
"""

import importlib.util
import os
import sys
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FAILED, FOUND, INTERRUPTED, OK, PIPE_CLOSED, fail

GROUP = "pyrocket.commands"
_OWN_COMMANDS = {
    "bench": "pyrocket.tools.cli.bench:bench",
    "broker": "pyrocket.tools.cli.broker:broker",
    "checkpoint": "pyspark_pyrocket.tools.checkpoints.commands:checkpoint",
    "completion": "pyrocket.tools.cli.command_group:completion",
    "dlq": "pyrocket.tools.cli.dlq:dlq",
    "doctor": "pyspark_pyrocket.tools.doctor:doctor",
    "group": "pyrocket.tools.cli.group:group",
    "message": "pyrocket.tools.cli.message:message",
    "nameserver": "pyrocket.tools.cli.broker:nameserver",
    "offset": "pyrocket.tools.cli.group:offset",
    "repair": "pyrocket.tools.cli.repair:repair",
    "snapshot": "pyrocket.tools.cli.snapshot:snapshot",
    "store": "pyrocket.tools.cli.store:store",
    "topic": "pyrocket.tools.cli.topic:topic",
    "verify": "pyrocket.tools.cli.repair:verify",
}

_EXTRAS = {"pyspark": "spark", "tomli": "broker"}
"""Module that a command may need → extra that installs it."""

_REINSTALL = "Reinstall its distribution, or remove it."


class LazyCommands(CommandGroup):
    """A group that imports commands when they are run or listed, and tolerates broken commands."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command and exit; with `--json`, usage errors are also reported as JSON."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        leaves = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not leaves:
            return super().main(*arguments, **options)
        given = options.get("args", next(iter(arguments), None))
        as_json = "--json" in (sys.argv[1:] if given is None else given)
        try:
            status = super().main(*arguments, **options)
        except click.ClickException as error:
            _refuse(error, as_json=as_json)
        except click.Abort as error:
            interrupted = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
            _abort(interrupted=interrupted, as_json=as_json)
        raise SystemExit(status if isinstance(status, int) else OK)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would exit with 1 on a closed pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Prevents a traceback from the interpreter's last flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(PIPE_CLOSED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *find_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load and return the command of that name, or None."""
        known = super().get_command(ctx, cmd_name)
        entry = find_commands().get(cmd_name)
        return known or (load_command(entry) if entry else None)


def _abort(*, interrupted: bool, as_json: bool) -> NoReturn:
    status = INTERRUPTED if interrupted else FOUND
    if as_json:
        what = "interrupted" if interrupted else "aborted"
        message, remedy = f"{what} before the end.", "Run it again."
        fail(what.upper(), message, remedy, as_json=True, status=status)
    click.echo("Aborted!", err=True)
    raise SystemExit(status)


def _refuse(error: click.ClickException, *, as_json: bool) -> NoReturn:
    if as_json:
        context = error.ctx if isinstance(error, click.UsageError) else None
        remedy = f"See `{context.command_path} --help`." if context else ""
        fail("USAGE" if context else "COMMAND", error.format_message(), remedy, as_json=True)
    error.show()
    raise SystemExit(FAILED)


def find_commands() -> dict[str, EntryPoint]:
    """Return the entry point of each command; an installed command takes precedence."""
    own = {
        name: EntryPoint(name, value, GROUP)
        for name, value in _OWN_COMMANDS.items()
        if importlib.util.find_spec(value.partition(".")[0])
    }
    return own | {entry.name: entry for entry in entry_points(group=GROUP)}


def load_command(entry: EntryPoint) -> click.Command:
    """Return the command, or a substitute that reports why it cannot be loaded."""
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            return _broken(entry, f"{type(error).__name__}: {error}")
        remedy = f"Run: pip install '.[{extra}]' in the checkout of pyrocket."
        return _broken(entry, f"it needs {error.name}", remedy)
    except Exception as error:
        return _broken(entry, f"{type(error).__name__}: {error}")
    return command if isinstance(command, click.Command) else _broken(entry, "not a command")


def _broken(entry: EntryPoint, reason: str, remedy: str = _REINSTALL) -> click.Command:
    def refuse() -> None:
        as_json = "--json" in click.get_current_context().args
        message = f"{entry.name} ({entry.value}) cannot be loaded: {reason}."
        fail("COMMAND", message, remedy, as_json=as_json)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    help_text = f"Cannot be loaded: {reason}. {remedy}"
    short = f"Cannot be loaded: {reason}."
    return click.Command(entry.name, anything, callback=refuse, help=help_text, short_help=short)


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    try:
        release = version("pyspark-pyrocket")
    except PackageNotFoundError:
        release = f"(not installed: {os.path.dirname(os.path.dirname(__file__))})"
    click.echo(f"pyrocket {release}")
    ctx.exit()


@click.group(cls=LazyCommands)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the release and exit.",
)
def main() -> None:
    """Manage topics stored in Apache RocketMQ's formats, and brokers that serve them."""
