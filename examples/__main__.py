"""`python3 examples [NAME]`: sets up the environment and runs the main job, or the example NAME."""

import re
import runpy
import sys
from difflib import get_close_matches
from pathlib import Path

import environment

FOLDER = Path(__file__).resolve().parent
_ROW = re.compile(r"^\| \[(\w+)\]\(\1\.py\) \| (\w+) \| (.+) \|$", re.MULTILINE)
USAGE = """\
Usage: python3 examples [--setup-only] [--with-java] [NAME] [ARGUMENTS]

Sets up the environment in .venv, and runs the example NAME, or `flights`. The examples with a
server need --path DIRECTORY, a store that they create, or --endpoint HOST:PORT, a broker.
--setup-only prints the interpreter and ends; --with-java installs a Java in the environment.
"""


def examples() -> dict[str, str]:
    """Return the examples with what they show, as README.md lists them."""
    rows = _ROW.findall((FOLDER / "README.md").read_text())
    return {name: f"{what}{' (server)' * (server == 'yes')}" for name, server, what in rows}


def chosen(arguments: list[str]) -> str:
    """Return the name of the example, and remove it from the arguments.

    Exits with the list of examples for `--help`, and for an unknown name.
    """
    names = examples()
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        return "flights"
    name = arguments.pop(0)
    if name in names:
        return name
    if name.startswith("-"):
        lines = [f"  {each:<20} {what}" for each, what in names.items()]
        sys.stdout.write("\n".join([USAGE, *lines, ""]))
        raise SystemExit(0)
    near = get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]}?" if near else f"The examples are {', '.join(names)}."
    raise SystemExit(f"There is no example {name}. {hint}")


if __name__ == "__main__":
    own = {"--setup-only", "--with-java"}
    name = chosen(rest := [each for each in sys.argv[1:] if each not in own])
    environment.ensure("examples", sys.argv[1:])
    sys.argv[1:] = rest
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
