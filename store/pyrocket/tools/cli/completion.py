"""`pyrocket completion`: prints a script for shell completion."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: pyrocket completion bash > ~/.local/share/bash-completion/completions/pyrocket
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "pyrocket", "_PYROCKET_COMPLETE").source())
