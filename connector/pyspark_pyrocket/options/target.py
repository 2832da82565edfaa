"""Where the store is: the option `path`, else the environment, as an absolute path."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyrocket.errors import OptionError

from pyspark_pyrocket.options import jsontext
from pyspark_pyrocket.options.option import ALL, Option

ROWS = (
    Option(
        "path",
        "`$PYROCKET_STORE`",
        ALL,
        "The store's directory, as a path or a `file:` URI; a relative one is the driver's.",
    ),
)

TABLE_TRAP = (
    "If this is a table made with CREATE TABLE ... USING pyrocket OPTIONS (...): Spark does not "
    "pass a table's options on. Use CREATE TEMPORARY VIEW ... USING pyrocket OPTIONS (...), or "
    "SELECT ... FROM t WITH (path = '...', topic = '...')."
)

_LATER = ("endpoint", "namesrv")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True)
class Request:
    """Options as Spark passes them, and what gives them meaning on the driver.

    directory: the driver's working directory, for relative paths.
    default_store: what PYROCKET_STORE is on the driver.
    """

    options: Mapping[str, str]
    directory: str
    default_store: str = ""


def split_target(request: Request) -> tuple[str, dict[str, str]]:
    """Return the absolute path of the store, and the options that are not about the target."""
    rest = {key.lower(): value for key, value in request.options.items()}
    path = _one_path(rest)
    _refuse_later_targets(rest)
    return absolute_path(path or request.default_store, request.directory), rest


def absolute_path(path: str, directory: str) -> str:
    """Return `path`, a path or `file:` URI, as an absolute path seen from `directory`."""
    if not path.strip():
        raise OptionError(
            "No store is named.",
            remedy="Set the option 'path' or the environment variable PYROCKET_STORE. "
            + TABLE_TRAP,
            code="OPTION_MISSING",
        )
    scheme = _SCHEME.match(path)
    if scheme is not None:
        path = _path_of_uri(path, scheme[1].lower())
    return os.path.abspath(os.path.join(directory, os.path.expanduser(path)))


def _one_path(options: dict[str, str]) -> str:
    path = options.pop("path", "")
    # `.load([...])` arrives as a JSON list.
    several = jsontext.parse("paths", options.pop("paths", "[]"))
    if not isinstance(several, list) or len(several) > 1 or (several and path):
        raise OptionError(
            f"Several paths are given: {path} {several}.",
            remedy="Read one store per DataFrame and use union.",
            code="OPTION_CONFLICT",
        )
    return str(several[0]) if several else path


def _refuse_later_targets(options: dict[str, str]) -> None:
    for name in _LATER:
        if name in options:
            raise OptionError(
                f"Option {name!r} is to come: this version reads and writes no broker over the "
                "network.",
                remedy=f"Remove {name!r}, and name the directory of a store with 'path'.",
                code="OPTION_UNSUPPORTED",
            )


def _path_of_uri(uri: str, scheme: str) -> str:
    if len(scheme) == 1:
        raise OptionError(
            f"The path {uri!r} is one of Windows, where pyrocket does not run.",
            remedy=f"In WSL write /mnt/{scheme}/... for what is on drive {scheme.upper()}:, or "
            "better a directory of Linux's own, such as ~/store.",
        )
    if scheme != "file":
        raise OptionError(
            f"The path {uri!r} has the scheme {scheme!r}.",
            remedy="A store is a local or mounted directory: give a path or a file: URI "
            "(./ before a name that contains a colon).",
        )
    # '?' and '#' are legal in file names, and Hadoop's paths know no query or fragment.
    rest = uri[len("file:") :]
    host = urlsplit(rest.split("?")[0].split("#")[0]).netloc if rest.startswith("//") else ""
    path = rest[2 + len(host) :] if rest.startswith("//") else rest
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise OptionError(
            f"The URI {uri!r} does not name a local absolute path.",
            remedy="Write file:///absolute/path.",
        )
    return unquote(path)
