"""What makes a directory this store: `pyrocket/store.json`.

Written once, when the directory is made or first opened for writing. Sizes of a directory that
Java made are taken from its files.
"""

import json
import uuid
from dataclasses import dataclass

from pyrocket.config import StoreConfig
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout, parse_file_name
from pyrocket.errors import StoreDamagedError

_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """`store_id` is empty for a directory that only Java has written."""

    store_id: str
    config: StoreConfig

    @property
    def key(self) -> bytes:
        """The id as 16 bytes."""
        return uuid.UUID(self.store_id).bytes


def load_identity(layout: Layout, config: StoreConfig) -> Identity:
    """Return who the directory says it is; its sizes and broker name win over `config`."""
    text = read_or_none(layout.identity)
    if text is None:
        return Identity("", config.with_sizes(**_sizes_of(layout)))
    try:
        known = json.loads(text)
        return Identity(
            str(uuid.UUID(known["uuid"])),
            config.with_sizes(
                log_file_bytes=known["logFileBytes"],
                queue_file_entries=known["queueFileEntries"],
                broker_name=known["brokerName"],
            ),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"{layout.identity} cannot be read: {error!r}.",
            remedy="Restore it from a backup, or remove it to let the next writer make a new one"
            " (running queries then see another store).",
        ) from error


def make_identity(layout: Layout, config: StoreConfig, created_ms: int) -> Identity:
    """Give the directory an id; the caller holds the mutex."""
    identity = Identity(str(uuid.uuid4()), config.with_sizes(**_sizes_of(layout)))
    content = {
        "version": _VERSION,
        "uuid": identity.store_id,
        "brokerName": identity.config.broker_name,
        "created": created_ms,
        "logFileBytes": identity.config.log_file_bytes,
        "queueFileEntries": identity.config.queue_file_entries,
    }
    replace_file(layout.identity, json.dumps(content, indent=1).encode(), layout.scratch)
    return identity


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
