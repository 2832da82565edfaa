"""Recovers the state of all groups from the last snapshot and the changes in the log after it.

If the snapshot is missing or belongs to another log, the groups start at the committed offsets in
RocketMQ's file: messages are delivered again, but not skipped.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from pyrocket.base.clock import Clock
from pyrocket.broker.pop.events import Drop, decode_events
from pyrocket.broker.pop.group import GroupState
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error
from pyrocket.formats.receipt import new_key
from pyrocket.services.consumption import LACKS_ALL, Consumption

_WAIT_S = 30
_NEVER = 2**62
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Recovered:
    """The key that signs receipts, and the groups by name.

    from_snapshot: Whether a valid snapshot was found. last_ms: The last time in the state.
    """

    key: bytes
    groups: dict[str, GroupState]
    from_snapshot: bool
    last_ms: int


def recover(storage: Consumption) -> _Recovered:
    """Return the recovered state."""
    storage.dispatch()
    key, start, saved = _restore(storage, content := storage.load())
    if saved is None:
        storage.saved_next = LACKS_ALL
    groups, last_ms = saved or {}, _time_of(content) if saved else 0
    known = storage.changes()
    for born_ms, body in storage.read_changes(max(start, known.minimum), known.maximum):
        last_ms = max(last_ms, born_ms)
        _apply(groups, body)
    for state in groups.values():
        _fit(storage, state)
        last_ms = max(last_ms, state.last_delivery)
    return _Recovered(key, groups, saved is not None, last_ms)


def save(
    storage: Consumption, key: bytes, groups: Callable[[], Sequence[GroupState]], now: Clock
) -> None:
    """Save the state of all groups if it has changed."""
    # Some acks in the log may not be applied yet, and some applied changes may not be in the log.
    known = storage.changes()
    if known.maximum == storage.saved_next:
        return
    _wait_for_acks(groups())
    content: dict[str, Any] = {
        "key": key.hex(),
        "next": known.maximum,
        "last": storage.change_place(known.maximum - 1) if known.maximum else -1,
        "now": now(),
        "groups": {},
    }
    for state in groups():
        with state.lock:
            content["groups"][state.name] = state.to_json()
    # The acked messages must be durable before their acks are.
    storage.flush()
    storage.save(content)


def _wait_for_acks(groups: Sequence[GroupState]) -> None:
    appends = [append for state in groups for append in state.appends()]
    if wait(appends, _WAIT_S).not_done:
        raise StoreUnavailableError("appends of acks take too long.", remedy="Try again.")


def _restore(
    storage: Consumption, content: dict[str, Any] | None
) -> tuple[bytes, int, dict[str, GroupState] | None]:
    """Return the key, first change and groups of a snapshot; groups is None if it is unusable."""
    key = new_key()
    if content is None:
        return key, 0, None
    try:
        key = bytes.fromhex(content["key"])
        if _agrees(storage, int(content["next"]), int(content["last"])):
            groups = {
                name: GroupState.from_json(name, queues)
                for name, queues in content["groups"].items()
            }
            return key, int(content["next"]), groups
        _log.warning("pop.json does not match the log: groups resume at committed offsets")
    except PARSE_ERRORS as error:
        _log.error(
            "pop.json cannot be parsed (%s): groups resume at committed offsets",
            describe_error(error),
        )
    return key, 0, None


def _time_of(content: dict[str, Any] | None) -> int:
    """Return the time of a snapshot; 0 if an earlier release has written it."""
    now = (content or {}).get("now", 0)
    return now if isinstance(now, int) and now < _NEVER else 0


def _agrees(storage: Consumption, after: int, last: int) -> bool:
    """Whether the last change in a snapshot is at the same log offset, or has been deleted."""
    known = storage.changes()
    if after > known.maximum:
        return False
    return after <= known.minimum or storage.change_place(after - 1) == last


def _apply(groups: dict[str, GroupState], body: bytes) -> None:
    try:
        events = decode_events(body)
    except StoreDamagedError as error:
        _log.error("messages may be delivered again: %s", error)
        return
    for event in events:
        if isinstance(event, Drop):
            groups.pop(event.group, None)
            continue
        groups.setdefault(event.group, GroupState(event.group)).apply(event)


def _fit(storage: Consumption, state: GroupState) -> None:
    """Adjust the state of a group to the offsets of its queues."""
    committed = storage.offsets()
    for (topic, queue_id), queue in state.queues.items():
        known = storage.bounds(topic, queue_id)
        if not queue.known:
            offset = committed.get((topic, state.name), {}).get(queue_id, known.minimum)
            queue.reach_from(max(offset, known.minimum))
            queue.known, queue.saved = True, (offset, -1)
        queue.truncate(known.maximum)
