"""The locks of orderly consumers on queues. Source: `RebalanceLockManager`.

RocketMQ keeps locks in memory, so after a restart of the broker two members can consume a queue at
once. Here, owners are saved when they change, and after a restart every lock counts as renewed.
"""

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyrocket.disk.io import read_hint, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error
from pyrocket.values.message import MessageQueue

LOCK_MS = 60_000
"""How long a lock lasts after its last renewal."""

_MAX_BYTES = 16 * 1024 * 1024
"""A longer `locks.json` is neither written nor read: the locks in memory are valid without it."""

_log = logging.getLogger(__name__)
_Key = tuple[str, str, int]


@dataclass
class _Lock:
    owner: str
    renewed_ms: int


class QueueLocks:
    """The locks of one store's queues, by `steady_clock`. Safe to share between threads."""

    def __init__(self, layout: Layout, now_ms: int) -> None:
        """Load the owners that were saved before a restart; none if the file is invalid."""
        self._layout, self._lock, self._unsaved = layout, threading.Lock(), False
        self._locks: dict[_Key, _Lock] = {
            key: _Lock(owner, now_ms) for key, owner in _load(layout).items()
        }

    def lock(
        self, group: str, client_id: str, queues: Collection[MessageQueue], now_ms: int
    ) -> dict[MessageQueue, bool]:
        """Lock or renew queues for a client; return those that no other client has locked.

        The value of a queue is True if the client held its lock until now.
        """
        with self._lock:
            granted = dict[MessageQueue, bool]()
            for queue in queues:
                key = group, queue.topic, queue.queue_id
                lock = self._locks.get(key)
                is_own = lock is not None and lock.owner == client_id
                is_live = lock is not None and now_ms - lock.renewed_ms < LOCK_MS
                if is_own or not is_live:
                    self._locks[key] = _Lock(client_id, now_ms)
                    granted[queue] = is_own and is_live
                    self._unsaved = self._unsaved or not is_own
            if self._unsaved:
                self._save(now_ms)
        return granted

    def unlock(
        self, group: str, client_id: str, queues: Collection[MessageQueue], now_ms: int
    ) -> None:
        """Remove the locks of a client; those of others are ignored."""
        with self._lock:
            keys = [(group, queue.topic, queue.queue_id) for queue in queues]
            own = [
                key for key in keys if key in self._locks and self._locks[key].owner == client_id
            ]
            for key in own:
                del self._locks[key]
            self._unsaved = self._unsaved or bool(own)
            if self._unsaved:
                self._save(now_ms)

    def owner(self, group: str, topic: str, queue_id: int, now_ms: int) -> str | None:
        """Return the client that has locked a queue; None if there is none."""
        with self._lock:
            lock = self._locks.get((group, topic, queue_id))
            return None if lock is None or now_ms - lock.renewed_ms >= LOCK_MS else lock.owner

    def _save(self, now_ms: int) -> None:
        self._locks = {
            key: lock for key, lock in self._locks.items() if now_ms - lock.renewed_ms < LOCK_MS
        }
        rows = [[*key, lock.owner] for key, lock in sorted(self._locks.items())]
        path = self._layout.queue_locks
        data = encode_own(path, {"locks": rows})
        if len(data) <= _MAX_BYTES:
            replace_file(path, data, self._layout.scratch)
        else:
            _log.warning("%s is not written: it would have %d bytes", path, len(data))
        self._unsaved = False


def _load(layout: Layout) -> Mapping[_Key, str]:
    data = read_hint(layout.queue_locks, _MAX_BYTES)
    if data is None:
        return {}
    try:
        rows = decode_own(layout.queue_locks, data)["locks"]
        return {
            (str(group), str(topic), int(number)): str(owner)
            for group, topic, number, owner in rows
        }
    except PARSE_ERRORS as error:
        _log.warning(
            "%s cannot be parsed (%s): for a minute, two members may consume one queue",
            *(layout.queue_locks, describe_error(error)),
        )
        return {}
