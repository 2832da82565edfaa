"""The identity of a store: `pyrocket/store.json`.

The file is written when the directory is created or first opened for writing, and again when
`property_crc` or the log ranges with checksums change. A file of an older version gets the sizes
and delay levels that it lacks. In a directory that a broker created, the sizes are those of most of
its files; they are saved only when all files have them. The delay levels of such a directory are,
in this order: levels given by the first process that opens it for writing, levels derived from its
queue entries (`delay_levels`), or RocketMQ's defaults.
"""

import json
import logging
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from pyrocket.base.arguments import path_of
from pyrocket.base.cached import Cached
from pyrocket.base.config import StoreConfig
from pyrocket.base.versions import RELEASE, VERSIONS, check_version
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import naming_obstacles
from pyrocket.disk.root_checks import refuse_foreign, refuse_inside_store
from pyrocket.disk.shared_state import SharedState, lock_identity
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    StoreDamagedError,
    StoreNotFoundError,
    StorePermissionError,
)
from pyrocket.formats.checked_json import check_own_version
from pyrocket.formats.fastjson import describe_error
from pyrocket.formats.record_fields import NOT_SEALED, OPEN_END, SealedRanges
from pyrocket.metadata.delay_levels import learn_delay_levels
from pyrocket.metadata.json_table import file_stamp
from pyrocket.metadata.store_sizes import (
    GIVE_INDEX_SIZES,
    check_all_lengths,
    check_saved_sizes,
    index_sizes,
    sizes_of_files,
)

_log = logging.getLogger(__name__)
_warned: set[tuple[Path, str]] = set()
_SIZES = {
    "log_file_bytes": "logFileBytes",
    "queue_file_entries": "queueFileEntries",
    "index_slots": "indexSlots",
    "index_items": "indexItems",
}
"""Name in the configuration → name in the file."""

_DELAY_LEVELS = "messageDelayLevel"
_PROPERTY_CRC = "enabledAppendPropCRC"
_SEALED, _SEALED_LOCK = "propertyCrcRanges", "propertyCrcLock"

_SINCE_FIRST = ("log_file_bytes", "queue_file_entries")
_UNREAD = (StoreDamagedError, StorePermissionError, PermissionError)
_INVALID = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OptionError)


@dataclass(frozen=True)
class Identity:
    """The id of a store, and the configuration with its sizes, delay levels and broker name.

    store_id: empty for a directory that only a broker has written. knows_index: whether the slots
    and items of its index files are known. knows_levels: whether its delay levels are configured
    or saved, not derived from entries.
    """

    store_id: str
    config: StoreConfig
    knows_index: bool = True
    knows_levels: bool = True

    @cached_property
    def key(self) -> bytes:
        """The id as 16 bytes."""
        return uuid.UUID(self.store_id).bytes


def layout_of(path: str | PathLike[str]) -> Layout:
    """Return the layout of the directory at `path`. Raises StoreNotFoundError."""
    try:
        return Layout(path_of(path, "the path of a store", "STORE_PATH"))
    except InvalidInputError as error:
        raise StoreNotFoundError(error.message, remedy=error.remedy, code=error.code) from None


def check_directory(layout: Layout, *, create: bool) -> None:
    """Raise StoreNotFoundError unless a store exists or, with `create`, may be created.

    Raises UnsupportedError (STORE_NEWER) if a later release has written a file of the store.
    """
    root = layout.root
    if root.exists() and not root.is_dir():
        raise StoreNotFoundError(
            f"{root} is a file.", remedy="A store is a directory.", code="STORE_NOT_A_DIRECTORY"
        )
    if layout.looks_like_a_store:
        _check_versions(layout)
        return
    refuse_inside_store(root)
    refuse_foreign(root)
    if not create:
        raise StoreNotFoundError(
            f"there is no store at {root}.",
            remedy="Check the path, and whether its disk is mounted. A Spark write, "
            "`Store.open(path, create=True)` or `pyrocket topic create --create-store` "
            "creates a store.",
        )


def _check_versions(layout: Layout) -> None:
    """Check the versions of all files that are not optional; their use reports damage."""
    with suppress(*_UNREAD, *_INVALID):
        known = json.loads(read_or_none(layout.identity) or b"{}")
        check_version(layout.identity, known.get("version", 1), known.get("release", ""))
    for path in (*layout.tables, layout.cursors, layout.role):
        with suppress(*_UNREAD):
            check_own_version(path, read_or_none(path) or b"")
    with suppress(*_UNREAD):
        page = SharedState.open_readable(layout.state)
        if page is not None:
            page.close()


@naming_obstacles
def load_identity(layout: Layout, config: StoreConfig) -> Identity:
    """Return the identity of a directory; its sizes and broker name override those of `config`.

    Raises OptionError (DELAY_LEVELS) if `config` has other delay levels, StoreDamagedError
    (STORE_SIZES) if `store.json` contradicts all files, and StoreDamagedError (STORE_FILE_LENGTH)
    if `store.json` is missing and the size of the log's files is unknown.
    """
    text = read_or_none(layout.identity)
    if text is None:
        return _by_files(layout, config)
    try:
        identity = _parse(layout, config, json.loads(text))
    except _INVALID as error:
        raise StoreDamagedError(
            f"{layout.identity} cannot be read: {describe_error(error)}.",
            remedy="Restore it from a backup, or remove it: the next writer makes a new one, with"
            " the sizes that the files have. Running queries then see another store; a"
            " broker_name and delay_levels have to be given again if they are not the defaults.",
        ) from error
    _check_delay_levels(layout, config, identity.config)
    check_saved_sizes(layout, identity.config)
    return identity


def identify(layout: Layout, config: StoreConfig) -> tuple[Identity, StoreDamagedError | None]:
    """Return the identity as far as it is known, and the error in `store.json`; None if valid.

    Raises StoreDamagedError (STORE_FILE_LENGTH) if the size of the log's files is unknown.
    """
    try:
        return load_identity(layout, config), None
    except StoreDamagedError as error:
        text: bytes | None = b""
        with suppress(StoreDamagedError):  # It is not a regular file: `error` describes that.
            text = read_or_none(layout.identity)
        if text is None:
            raise
        return _by_files(layout, _with_delay_levels(config, text)), error


def _parse(layout: Layout, config: StoreConfig, known: dict[str, Any]) -> Identity:
    sizes = {name: known[_SIZES[name]] for name in _SINCE_FIRST}
    index: dict[str, int] | None
    if _SIZES["index_slots"] in known:
        index = {name: known[key] for name, key in _SIZES.items()}
    else:
        index = index_sizes(layout, config)
    levels = known.get(_DELAY_LEVELS, config.delay_levels)
    own = {"broker_name": known["brokerName"], "property_crc": _property_crc(known, config)}
    resolved = config.with_sizes(**sizes | (index or {}), **own, delay_levels=levels)
    return Identity(str(uuid.UUID(known["uuid"])), resolved, index is not None)


def _by_files(layout: Layout, config: StoreConfig) -> Identity:
    index = index_sizes(layout, config)
    resolved = config.with_sizes(**sizes_of_files(layout, config) | (index or {}))
    if config.delay_levels is not None:
        return Identity("", resolved, index is not None)
    levels = learn_delay_levels(layout, resolved.log_file_bytes, resolved.queue_file_bytes)
    resolved = resolved.with_sizes(delay_levels=levels)
    return Identity("", resolved, index is not None, knows_levels=False)


def _with_delay_levels(config: StoreConfig, text: bytes) -> StoreConfig:
    """Return the configuration with the delay levels that a corrupt `store.json` still has."""
    match = re.search(rf'"{_DELAY_LEVELS}": *"([\w ]*)"', text.decode("ascii", "replace"))
    try:
        return config.with_sizes(delay_levels=match[1]) if match else config
    except OptionError:
        return config


def _property_crc(known: dict[str, Any], config: StoreConfig) -> bool | None:
    if config.property_crc is not None:
        return config.property_crc
    return bool(known[_PROPERTY_CRC]) if _PROPERTY_CRC in known else None


class SealedLog:
    """The log ranges with checksums of whole records; reloaded when `store.json` changes."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._ranges = Cached(
            lambda: (file_stamp(layout.identity), lock_identity(layout.lock)), self._read
        )

    def __call__(self) -> SealedRanges:
        """Return the ranges; empty if another program may have appended to the log."""
        return self._ranges()

    def _read(self) -> SealedRanges:
        known: dict[str, Any] = {}
        with suppress(*_INVALID, StoreDamagedError):  # Opening the store reports it.
            known = json.loads(read_or_none(self._layout.identity) or b"{}")
            pairs = [(int(start), _end(end)) for start, end in known.get(_SEALED, [])]
            sealed = SealedRanges(tuple(pairs), int(known[_SIZES["log_file_bytes"]]))
            # An older release changes the flag without changing the ranges.
            agrees = sealed.is_open == bool(known.get(_PROPERTY_CRC))
            if agrees and known.get(_SEALED_LOCK) == _lock_time(self._layout):
                return sealed
        return NOT_SEALED

    def settle(self, log_end: int, sealing: bool | None, before_change: Callable[[], None]) -> None:
        """Save durably whether records at `log_end` or later have checksums; None means no.

        `before_change` is called if `store.json` changes: even if this process is killed, all other
        writers have to see the new setting. The caller must hold the write lock, and the log must
        end at `log_end`.
        """
        known = json.loads(read_or_none(self._layout.identity) or b"{}")
        ranges = self().at(log_end, sealing=bool(sealing)).ranges
        saved = [[start, None if end == OPEN_END else end] for start, end in ranges]
        lock = _lock_time(self._layout)
        before = known.get(_PROPERTY_CRC), known.get(_SEALED, []), known.get(_SEALED_LOCK, lock)
        if before == (sealing, saved, lock):
            return
        before_change()
        content = {
            **known,
            "version": VERSIONS[self._layout.identity.name],
            "release": RELEASE,
            _PROPERTY_CRC: sealing,
            _SEALED: saved,
            _SEALED_LOCK: lock,
        }
        _save(self._layout, content)


def _end(end: int | None) -> int:
    return OPEN_END if end is None else int(end)


def _lock_time(layout: Layout) -> int:
    """Return the time at which a broker last wrote `lock`; a copy of the store may preserve it."""
    return (lock_identity(layout.lock) or (0, 0))[0]


def _save(layout: Layout, content: dict[str, Any]) -> None:
    replace_file(layout.identity, json.dumps(content, indent=1).encode(), layout.scratch)


def _check_delay_levels(layout: Layout, wanted: StoreConfig, resolved: StoreConfig) -> None:
    """Raise OptionError if the wanted delay levels would change the due times of messages."""
    if wanted.delay_levels is None or wanted.delay_levels_ms == resolved.delay_levels_ms:
        return
    raise OptionError(
        f"{layout.root} has the delay levels {resolved.delay_levels_text!r}, not"
        f" {wanted.delay_levels!r}.",
        remedy="Omit delay_levels to use the directory's levels.",
        code="DELAY_LEVELS",
    )


def warn_of_differences(layout: Layout, given: StoreConfig, resolved: StoreConfig) -> None:
    """Warn once per process if given sizes or a given broker name are ignored.

    A default value causes no warning: it cannot be distinguished from a value that was not given.
    """
    default = StoreConfig()
    for name in (*_SIZES, "broker_name"):
        wanted, own = getattr(given, name), getattr(resolved, name)
        if wanted in (own, getattr(default, name)) or (layout.root, name) in _warned:
            continue
        _warned.add((layout.root, name))
        _log.warning("%s keeps its %s %r; %r is ignored", layout.root, name, own, wanted)


def create_identity(layout: Layout, config: StoreConfig, created_ms: int) -> Identity:
    """Save an id, sizes and delay levels that `store.json` lacks; return the identity.

    The caller must hold the write lock. Raises OptionError (INDEX_GEOMETRY, DELAY_LEVELS), the
    errors of `load_identity`, and StoreDamagedError if a file has a different size than most files.
    """
    known = load_identity(layout, config)
    content: dict[str, Any] = json.loads(read_or_none(layout.identity) or b"{}")
    if {*_SIZES.values(), _DELAY_LEVELS} <= set(content):
        return known
    if not known.knows_index:
        raise OptionError(
            f"the files in {layout.index} fit neither {config.index_slots} slots and"
            f" {config.index_items} items nor four items per slot.",
            remedy=GIVE_INDEX_SIZES,
            code="INDEX_GEOMETRY",
        )
    if not content:
        check_all_lengths(layout, known.config)
    resolved = known.config.with_sizes(delay_levels=known.config.delay_levels_text)
    identity = Identity(known.store_id or str(uuid.uuid4()), resolved)
    content = {
        "version": VERSIONS[layout.identity.name],
        "release": RELEASE,
        "uuid": identity.store_id,
        "brokerName": identity.config.broker_name,
        "created": created_ms,
        **content,
        **{key: getattr(identity.config, name) for name, key in _SIZES.items()},
        _DELAY_LEVELS: identity.config.delay_levels_text,
    }
    _save(layout, content)
    return identity
