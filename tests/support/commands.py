"""Runs `pyrocket` commands in this process."""

import json
from functools import cache

from click.testing import CliRunner
from pyrocket.tools import cli
from pyrocket.tools.cli import main

# A look-up of the installed commands takes 10 ms, and each command makes two.
cli.entry_points = cache(cli.entry_points)


def run(*arguments, answer=None, **environment):
    """Run a command with a string or bytes on standard input; return click's result."""
    texts = [str(each) for each in arguments]
    return CliRunner().invoke(main, texts, input=answer, env=environment, prog_name="pyrocket")


def run_on(path, *arguments, **options):
    """Run a command of a group on the store at `path`."""
    return run(*arguments, "--path", path, **options)


def document(*arguments, status=0, **options):
    """Run a command that prints only JSON, and return the parsed output."""
    done = run(*arguments, "--json", **options)
    assert done.exit_code == status, done.output
    assert not done.stderr
    return json.loads(done.stdout)


def document_on(path, *arguments, **options):
    """Run a command of a group on the store at `path`, and return the parsed output."""
    return document(*arguments, "--path", path, **options)
