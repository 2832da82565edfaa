"""The versions of pyrocket's own files, under `pyrocket/`, and of its bulk protocol.

`store/FORMAT.md` lists the changes between versions of the files.

A file without a version has version 1. Older versions are read. A file with a later version than
listed below is rejected with an error that names it, or is ignored if the store works without it.
Files that are rebuilt from the log (`keys`, `timers/`) have no version. A new format of such a file
gets a new name: an older release finds no file of the old name and rebuilds the file. `reserve` has
no version, because its content has no meaning.
"""

from pathlib import Path

from pyrocket.errors import UnsupportedError

RELEASE = "0.1.0"
"""As in `setup.py`."""

PROTOCOL = 1
"""The version of the bulk protocol, increased when old clients could misunderstand a reply."""

VERSIONS = {
    "store.json": 2,
    "topics.json": 1,
    "epochs.json": 1,
    "cursors.json": 1,
    "retention.json": 1,
    "group_starts.json": 1,
    "role.json": 1,
    "broker.json": 1,
    "sink.json": 2,
    "pop.json": 1,
    "locks.json": 1,
    "empty.json": 1,
    "unclean.json": 1,
    "ends.json": 1,
    "handed.json": 1,
    "state": 2,
}
"""The version of each file that this release writes, which is also the latest that it reads."""

HINTS = frozenset(
    {"broker.json", "ends.json", "handed.json", "empty.json", "unclean.json", "locks.json"}
)
"""Files that are ignored if they have a later version: the store works without them."""


def check_version(path: Path, version: object, release: object = "") -> None:
    """Check that this release can read this version of a file, which `release` has written.

    Raises UnsupportedError (STORE_NEWER) if the version is later, or ValueError if the version is
    invalid or the later file is one of `HINTS`.
    """
    newest = VERSIONS[path.name]
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"{version!r} is not a version")
    if version <= newest:
        return
    if path.name in HINTS:
        raise ValueError(f"version {version} is later than {newest}")
    writer = f"pyrocket {release}" if release else "a later release"
    raise UnsupportedError(
        f"{path} has version {version}, written by {writer}; this is pyrocket {RELEASE}, which"
        f" reads versions up to {newest}. Nothing has been changed.",
        remedy=f"Open the store with {writer} or later, or a copy made before the upgrade.",
        code="STORE_NEWER",
    )
