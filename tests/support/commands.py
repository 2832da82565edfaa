"""Runs `pyrocket` commands in this process."""

import json

from click.testing import CliRunner
from pyrocket.tools.cli import main


def run(*arguments, answer=None, **environment):
    """Run a command with text or bytes on standard input; return click's result."""
    texts = [str(each) for each in arguments]
    return CliRunner().invoke(main, texts, input=answer, env=environment, prog_name="pyrocket")


def run_on(path, *arguments, **options):
    """Run a command of a group on the store at `path`."""
    return run(*arguments, "--path", path, **options)


def document(*arguments, status=0, **options):
    """Return the JSON output of a command, which prints nothing else."""
    done = run(*arguments, "--json", **options)
    assert done.exit_code == status, done.output
    assert not done.stderr
    return json.loads(done.stdout)


def document_on(path, *arguments, **options):
    """Return the JSON of a command of a group on the store at `path`."""
    return document(*arguments, "--path", path, **options)
