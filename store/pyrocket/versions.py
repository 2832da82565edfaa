"""Versions of our own files, those under `pyrocket/`; `store/README.md` says what each changed.

A file without a version is of version 1. Older versions are read. A file of a later version than
the one below is refused by name, unless it is only a hint, which is ignored then. Files that are
rebuilt from the log (`keys`, `timers/`) have no number: a new format takes a new name, so that an
older release finds nothing and rebuilds its own.
"""

from pathlib import Path

from pyrocket.errors import UnsupportedError

RELEASE = "0.1.0"
"""As in `setup.py`."""

VERSIONS = {
    "store.json": 2,
    "topics.json": 1,
    "epochs.json": 1,
    "cursors.json": 1,
    "retention.json": 1,
    "sink.json": 2,
    "empty.json": 1,
    "unclean.json": 1,
    "ends.json": 1,
    "handed.json": 1,
    "state": 2,
}
"""The version of each file that this release writes, and the latest one that it reads."""

HINTS = frozenset({"ends.json", "handed.json", "empty.json", "unclean.json"})
"""Files that are ignored if they are of a later version: the store works without them."""


def check_version(path: Path, version: object, release: object = "") -> None:
    """Raise unless this release reads that version of a file, which `release` has written.

    Raises UnsupportedError (STORE_NEWER), for a hint ValueError; ValueError for what is no version.
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
