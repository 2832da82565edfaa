"""The interpreter for Spark, whose path must not need quotes in a shell: `python_for_spark`.

Spark looks for its Python with a shell command that does not quote the path. If the path has a
space, Spark finds no Python data sources.

Imports only the standard library: the examples load this module before any package is installed.
"""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NEEDS_QUOTES = re.compile(r"""[\\\s"'$&()*;<>?\[\]`{|}]""")


def needs_quotes(path: str) -> bool:
    """Return whether a shell would not read the path as one word."""
    return _NEEDS_QUOTES.search(path) is not None


def python_for_spark(executable: str) -> str:
    """Return a path of the interpreter that Spark can use: `executable`, or one with a link.

    The link replaces the folder of the environment. A link to the program would lose the
    environment, which Python finds next to the program. The link is in the user's cache folder, or
    in a folder of the user's own below the temporary folder. If both paths need quotes as well,
    `executable` is returned.
    """
    if not needs_quotes(executable):
        return executable
    python = Path(executable)
    home = python.parent.parent
    for folder in filter(_is_private, _folders()):
        link = folder / f"py-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
        _put_link(link, home)
        return str(link / python.relative_to(home))
    return executable


def _folders() -> Iterator[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (cache / "pyrocket", Path(tempfile.gettempdir()) / f"pyrocket-{os.getuid()}"):
        if not needs_quotes(str(folder)):
            yield folder


def _is_private(folder: Path) -> bool:
    """Create the folder if necessary; return whether only this user can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_ours and not others and os.access(folder, os.W_OK)


def _put_link(link: Path, home: Path) -> None:
    if link.is_symlink() and os.readlink(link) == str(home):
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(home)
    os.replace(fresh, link)
