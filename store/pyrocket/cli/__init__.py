"""The command line `pyrocket`: a group whose commands are found when they are asked for.

A command is an entry point of the group `pyrocket.commands`. Those of this distribution are
listed here too, so that a checkout on PYTHONPATH has them without an installation. They are
named by text: this package never imports the connector.
"""

import importlib.util
from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "pyrocket.commands"
_OWN_COMMANDS = {
    "checkpoint": "pyspark_pyrocket.checkpoints.commands:checkpoint",
    "clean": "pyrocket.cli.clean:clean",
    "doctor": "pyspark_pyrocket.doctor:doctor",
    "repair": "pyrocket.cli.repair:repair",
    "snapshot": "pyrocket.cli.snapshot:snapshot",
    "verify": "pyrocket.cli.verify:verify",
}


class LazyCommands(click.Group):
    """A group that imports a command when it is run or listed, and survives a broken one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *find_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, loaded, or None."""
        known = super().get_command(ctx, cmd_name)
        entry = find_commands().get(cmd_name)
        return known or (load_command(entry) if entry else None)


def find_commands() -> dict[str, EntryPoint]:
    """Return where each command is to be loaded from; an installed one wins."""
    own = {
        name: EntryPoint(name, value, GROUP)
        for name, value in _OWN_COMMANDS.items()
        if importlib.util.find_spec(value.partition(".")[0])
    }
    return own | {entry.name: entry for entry in entry_points(group=GROUP)}


def load_command(entry: EntryPoint) -> click.Command:
    """Return the command, or one in its place that tells why it cannot be loaded."""
    try:
        command = entry.load()
    except Exception as error:
        return _broken(entry, f"{type(error).__name__}: {error}")
    return command if isinstance(command, click.Command) else _broken(entry, "not a command")


def _broken(entry: EntryPoint, reason: str) -> click.Command:
    def fail() -> None:
        raise click.ClickException(f"{entry.name} ({entry.value}) cannot be loaded: {reason}")

    return click.Command(entry.name, callback=fail, help=f"Cannot be loaded: {reason}")


@click.group(cls=LazyCommands)
def main() -> None:
    """Topics on disk in Apache RocketMQ's format, for Spark and for people."""
