"""The class of all command groups, and the completion of their commands in a shell."""

from difflib import get_close_matches

import click

from pyrocket.tools.cli.frame import ANY_WIDTH


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: pyrocket completion bash > ~/.local/share/bash-completion/completions/pyrocket
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root().command
    click.echo(completion_class(root, {}, "pyrocket", "_PYROCKET_COMPLETE").source())


class CommandGroup(click.Group):
    """A group that shows complete command summaries and suggests names for mistyped commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, which click would truncate."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=ANY_WIDTH))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named by the first argument. Raises UsageError."""
        names, name = self.list_commands(ctx), args[0]
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, names)
            proposal = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
            message = proposal or f"The commands are {', '.join(names)}."
            raise click.UsageError(f"No such command {name!r}. {message}", ctx)
        return super().resolve_command(ctx, args)
