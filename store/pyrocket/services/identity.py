"""What makes a directory this store: `pyrocket/store.json`.

Written once, when the directory is made or first opened for writing; one of an older version gets
the sizes and delay levels that it lacks. Sizes of a directory that Java made are taken from its
files; its delay levels are RocketMQ's, or what the first to open it for writing says.
"""

import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyrocket.config import StoreConfig
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout, parse_file_name
from pyrocket.errors import OptionError, StoreDamagedError, StoreNotFoundError
from pyrocket.formats.key_table import Geometry, is_table_name

_VERSION = 1
_SIZES = {
    "log_file_bytes": "logFileBytes",
    "queue_file_entries": "queueFileEntries",
    "index_slots": "indexSlots",
    "index_items": "indexItems",
}
"""Names in the configuration and in the file."""

_DELAY_LEVELS = "messageDelayLevel"
_PROPERTY_CRC = "enabledAppendPropCRC"

_STORE_NAMES = frozenset(
    ["abort", "checkpoint", "lock", "commitlog", "consumequeue", "index", "config", "pyrocket"]
)
_SINCE_FIRST = ("log_file_bytes", "queue_file_entries")


@dataclass(frozen=True)
class Identity:
    """`store_id` is empty for a directory that only Java has written."""

    store_id: str
    config: StoreConfig

    @cached_property
    def key(self) -> bytes:
        """The id as 16 bytes."""
        return uuid.UUID(self.store_id).bytes


def check_directory(layout: Layout, *, create: bool) -> None:
    """Raise StoreNotFoundError unless a store is there, or may be made there with `create`."""
    root = layout.root
    if root.exists() and not root.is_dir():
        raise StoreNotFoundError(
            f"{root} is a file.",
            remedy="A store is a directory.",
            code="STORE_NOT_A_DIRECTORY",
        )
    if layout.looks_like_a_store:
        return
    if not create:
        raise StoreNotFoundError(
            f"there is no store at {root}.",
            remedy="Check the path; writing to it creates one.",
        )
    foreign = {entry.name for entry in root.iterdir()} - _STORE_NAMES if root.exists() else set()
    if foreign:
        raise StoreNotFoundError(
            f"{root} is no store and holds other files, such as {min(foreign)!r}.",
            remedy="Name an empty or a new directory.",
            code="STORE_DIRECTORY_NOT_EMPTY",
        )


def load_identity(layout: Layout, config: StoreConfig) -> Identity:
    """Return who the directory says it is; its sizes and broker name win over `config`.

    Raises OptionError (DELAY_LEVELS) if `config` names other delay levels.
    """
    text = read_or_none(layout.identity)
    if text is None:
        sizes = _sizes_of(layout) | (_index_sizes(layout, config) or {})
        return Identity("", config.with_sizes(**sizes))
    try:
        known = json.loads(text)
        sizes = {name: known[_SIZES[name]] for name in _SINCE_FIRST}
        if _SIZES["index_slots"] in known:
            sizes |= {name: known[key] for name, key in _SIZES.items()}
        else:
            sizes |= _index_sizes(layout, config) or {}
        levels = known.get(_DELAY_LEVELS, config.delay_levels)
        own = {"broker_name": known["brokerName"], "property_crc": _property_crc(known, config)}
        settled = config.with_sizes(**sizes, **own, delay_levels=levels)
        identity = Identity(str(uuid.UUID(known["uuid"])), settled)
    except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
        raise StoreDamagedError(
            f"{layout.identity} cannot be read: {error!r}.",
            remedy="Restore it from a backup, or remove it to let the next writer make a new one"
            " (running queries then see another store).",
        ) from error
    _check_delay_levels(layout, config, settled)
    return identity


def _property_crc(known: dict[str, Any], config: StoreConfig) -> bool | None:
    if config.property_crc is not None:
        return config.property_crc
    return bool(known[_PROPERTY_CRC]) if _PROPERTY_CRC in known else None


def _check_delay_levels(layout: Layout, wanted: StoreConfig, settled: StoreConfig) -> None:
    """Refuse delay levels under which delayed messages would be due at other times."""
    if wanted.delay_levels is None or wanted.delay_levels_ms == settled.delay_levels_ms:
        return
    raise OptionError(
        f"{layout.root} has the delay levels {settled.delay_levels_text!r}; delay_levels says"
        f" {wanted.delay_levels!r}.",
        remedy="Leave delay_levels out: the directory's are taken then.",
        code="DELAY_LEVELS",
    )


def settle_identity(layout: Layout, config: StoreConfig, created_ms: int) -> Identity:
    """Return who the directory is, having given it an id and sizes that it lacked.

    The caller holds the mutex. Raises OptionError (INDEX_GEOMETRY, DELAY_LEVELS).
    """
    known = load_identity(layout, config)
    content: dict[str, Any] = json.loads(read_or_none(layout.identity) or b"{}")
    crc = known.config.property_crc
    if {*_SIZES.values(), _DELAY_LEVELS} <= set(content) and content.get(_PROPERTY_CRC) == crc:
        return known
    if _index_sizes(layout, known.config) is None:
        raise OptionError(
            f"the files in {layout.index} fit neither {config.index_slots} slots and"
            f" {config.index_items} items nor four items a slot.",
            remedy="Set index_slots and index_items to the broker's maxHashSlotNum and"
            " maxIndexNum, or remove the folder: it is built anew.",
            code="INDEX_GEOMETRY",
        )
    settled = known.config.with_sizes(delay_levels=known.config.delay_levels_text)
    identity = Identity(known.store_id or str(uuid.uuid4()), settled)
    content = {
        "version": _VERSION,
        "uuid": identity.store_id,
        "brokerName": identity.config.broker_name,
        "created": created_ms,
        **content,
        **{key: getattr(identity.config, name) for name, key in _SIZES.items()},
        _DELAY_LEVELS: identity.config.delay_levels_text,
        **({} if crc is None else {_PROPERTY_CRC: crc}),
    }
    replace_file(layout.identity, json.dumps(content, indent=1).encode(), layout.scratch)
    return identity


def _index_sizes(layout: Layout, config: StoreConfig) -> dict[str, int] | None:
    """Return what index files say about their geometry, which is little: their length.

    Nothing if there are none or the configuration fits one, None if nothing fits.
    """
    files = sorted(path for path in layout.index.glob("*") if is_table_name(path.name))
    lengths = [path.stat().st_size for path in files]
    if not lengths or Geometry(config.index_slots, config.index_items).file_bytes in lengths:
        return {}
    for guess in filter(None, map(Geometry.guess, lengths)):
        return {"index_slots": guess.slots, "index_items": guess.items}
    return None


def _sizes_of(layout: Layout) -> dict[str, int]:
    """Return the sizes that existing files have."""
    sizes = {}
    if found := _any_size(layout, "commitlog/*"):
        sizes["log_file_bytes"] = found
    if found := _any_size(layout, "consumequeue/*/*/*"):
        sizes["queue_file_entries"] = found // 20
    return sizes


def _any_size(layout: Layout, pattern: str) -> int:
    for path in layout.root.glob(pattern):
        if parse_file_name(path.name) is not None and path.stat().st_size:
            return path.stat().st_size
    return 0
