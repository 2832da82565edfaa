"""The store's path, from the option `path` or the environment, as an absolute path."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyrocket import local_path
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.json_values import parse_json
from pyspark_pyrocket.options.option import ALL, SERVERS, TEXT, Option, conflict

PATH = Option(
    "path",
    ALL,
    TEXT,
    "The store's directory: a path or a `file:` URI. A relative path is resolved against the "
    "driver's working directory.",
    default="`$PYROCKET_STORE`",
    targets=("path",),
)

TABLE_OPTIONS_ARE_LOST = (
    "If this is a table, made with CREATE TABLE, saveAsTable or writeTo(...).create(): Spark does "
    "not pass a table's options on. Use CREATE TEMPORARY VIEW ... USING pyrocket OPTIONS (...), or "
    "SELECT ... FROM t WITH (path = '...', topic = '...')."
)


@dataclass(frozen=True)
class Request:
    """Options as Spark passes them, with their context on the driver.

    directory: the driver's working directory, for relative paths.
    default_store: PYROCKET_STORE on the driver.
    """

    options: Mapping[str, str]
    directory: str
    default_store: str = ""


def split_target(request: Request) -> tuple[str, dict[str, str]]:
    """Return the absolute path of the store, empty with servers, and the other options."""
    rest = dict(request.options)
    path = _one_path(rest)
    servers = [name.lower() for name in rest if name.lower() in SERVERS]
    if len(servers) > 1 or (servers and path):
        both = [*servers, f"path {path!r}"] if path else servers
        raise conflict(
            f"Several targets are given: {' and '.join(both)}.",
            "Keep 'endpoint' to go through the broker, 'namesrv' to use a cluster of RocketMQ,"
            " or 'path' to open the directory.",
        )
    if servers:
        return "", rest
    return absolute_path(path or request.default_store, request.directory), rest


def absolute_path(path: str, directory: str) -> str:
    """Return `path`, a path or `file:` URI, as an absolute path; `directory` is its base."""
    if not path.strip():
        raise OptionError(
            "No store is named.",
            remedy="Set the option 'path', the environment variable PYROCKET_STORE, or the "
            "option 'endpoint' or 'namesrv'. " + TABLE_OPTIONS_ARE_LOST,
            code="OPTION_MISSING",
        )
    return os.path.abspath(os.path.join(directory, local_path(path)))


def _one_path(options: dict[str, str]) -> str:
    path = _pop(options, "path", "")
    # Spark passes the paths of `.load([...])` as a JSON list.
    several = parse_json("paths", _pop(options, "paths", "[]"), '["/data/store"]')
    if not isinstance(several, list) or len(several) > 1 or (several and path):
        raise conflict(
            f"Several paths are given: {path} {several}.",
            "Read one store per DataFrame and use union.",
        )
    return str(several[0]) if several else path


def _pop(options: dict[str, str], wanted: str, default: str) -> str:
    """Remove an option, ignoring the case of its name, and return its value."""
    for name in [name for name in options if name.lower() == wanted]:
        default = options.pop(name)
    return default
