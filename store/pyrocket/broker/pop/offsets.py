"""Saves committed offsets in RocketMQ's `consumerOffset.json`, and takes over external changes.

The file contains the lowest offset that is not acked, so a RocketMQ broker or a pull consumer that
opens the directory delivers messages again, but never skips one. Before an offset is saved, the log
records the old and the new value, because a crash may leave either of them in the file; afterwards,
it records only the new value. A value in the file that is not in the last record was committed or
reset by another program. If that value is higher, the messages before
it are acked; if it is lower, the group restarts there.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyrocket.broker.pop.events import Event, Forget, Saved, SkipTo, Start
from pyrocket.broker.pop.group import GroupState, Put, QueueKey
from pyrocket.broker.pop.recovery import recover
from pyrocket.broker.pop.values import News, Stored
from pyrocket.metadata.groups import OffsetsByQueue
from pyrocket.services.consumption import Consumption

_WAIT_S = 30.0
_NONE = -1
_log = logging.getLogger(__name__)

_Table = dict[tuple[str, str], OffsetsByQueue]


@dataclass(frozen=True)
class _Move:
    """A change of a committed offset, to be saved."""

    group: str
    place: QueueKey
    before: int
    offset: int


class OffsetKeeper:
    """Saves the committed offsets of all groups of one store. Used by one thread at a time."""

    def __init__(self, storage: Consumption, put: Put) -> None:
        self._storage, self._put = storage, put
        self._stamp: object = None
        self._news: list[News] = []

    def news(self) -> tuple[News, ...]:
        """Return the groups that have restarted at earlier offsets since the last call."""
        news = tuple(self._news)
        del self._news[: len(news)]
        return news

    def was_changed(self) -> bool:
        """Whether another program has changed the file. Cheap."""
        return self._storage.offsets_stamp() != self._stamp

    def save_all(self, groups: Sequence[GroupState]) -> None:
        """Take over external changes, and save all offsets that have changed."""
        self._stamp = self._storage.offsets_stamp()
        self.save(groups)

    def save(self, groups: Sequence[GroupState]) -> None:
        """Take over changes and save offsets of some groups; does not affect `was_changed`."""
        before = self._storage.offsets_stamp()
        moves = self._announce(groups, self._storage.offsets())
        if not moves:
            return
        written: list[_Move] = []
        # An offset must not become durable before the messages that it skips.
        self._storage.flush()
        self._storage.change_offsets(lambda known: self._apply(known, moves, written))
        if self._stamp == before:
            self._stamp = self._storage.offsets_stamp()
        self._settle(groups, written)

    def restart(self, state: GroupState, topic: str, offsets: OffsetsByQueue) -> None:
        """Restart a group at offsets that were just saved in the file."""
        with state.lock:
            events: list[Event] = []
            for queue_id, offset in offsets.items():
                place = topic, queue_id
                if place in state.queues:
                    saved = Saved(state.name, *place, offset, offset)
                    events += [Start(state.name, *place, offset), saved]
            stored = [self._put(state, events)] if events else []
        self._news += [News(state.name, topic) for _ in stored]
        _wait_for(stored)

    def _announce(self, groups: Sequence[GroupState], table: _Table) -> list[_Move]:
        """Take over external changes, and record in the log the offsets that will be saved."""
        moves, stored = list[_Move](), list[Stored]()
        for state in groups:
            with state.lock:
                self._take_over(state, table)
                mine = _moves(state, table)
                if mine:
                    events = [
                        Saved(state.name, *move.place, move.before, move.offset) for move in mine
                    ]
                    stored.append(self._put(state, events))
                    moves += mine
        _wait_for(stored)
        return moves

    def _apply(self, table: _Table, moves: Sequence[_Move], written: list[_Move]) -> bool:
        """Commit the offsets that no other program has changed since they were read.

        Offsets of a group or topic that was deleted since then are not created again.
        """
        for move in moves:
            exists = self._storage.group(move.group) and self._storage.topic(move.place[0])
            if move.before == _NONE and not exists:
                continue
            if _found(table, move.group, move.place) == move.before:
                topic, queue_id = move.place
                table.setdefault((topic, move.group), {})[queue_id] = move.offset
                written.append(move)
        return bool(written)

    def _settle(self, groups: Sequence[GroupState], written: Sequence[_Move]) -> None:
        """Record in the log that offsets were saved; old values now count as external changes."""
        stored: list[Stored] = []
        for state in groups:
            with state.lock:
                events = [
                    Saved(state.name, *move.place, move.offset, move.offset)
                    for move in written
                    if move.group == state.name and move.place in state.queues
                ]
                if events:
                    stored.append(self._put(state, events))
        _wait_for(stored)

    def _take_over(self, state: GroupState, table: _Table) -> None:
        events: list[Event] = []
        for place, queue in [*state.queues.items()]:
            offset = _found(table, state.name, place)
            is_gone = self._storage.topic(place[0]) is None
            if is_gone or offset not in queue.saved:
                events += self._events(state.name, place, queue.committed, offset)
            elif offset == queue.saved[-1] != queue.saved[0]:  # The record of the save is missing.
                events.append(Saved(state.name, *place, offset, offset))
        if events:
            self._put(state, events)

    def _events(self, group: str, place: QueueKey, committed: int, found: int) -> list[Event]:
        if found == _NONE:  # The topic or group was deleted and created again.
            self._news.append(News(group, place[0]))
            return [Forget(group, *place)]
        offset = min(found, self._storage.bounds(*place).maximum)
        _log.info(
            "group %s: took over offset %d of queue %d of %s", group, offset, place[1], place[0]
        )
        kind = SkipTo if offset >= committed else Start
        if kind is Start:
            self._news.append(News(group, place[0]))
        return [kind(group, *place, offset), Saved(group, *place, found, found)]


def commit_saved_offsets(storage: Consumption) -> None:
    """Commit the offsets that groups have saved, as the log says.

    The table of a replica may be older than its log. A group would take an earlier offset for a
    reset, and receive acked messages again.
    """
    saved = {
        (state.name, *place): queue.saved[-1]
        for state in recover(storage).groups.values()
        for place, queue in state.queues.items()
        if storage.group(state.name) and storage.topic(place[0])
        if 0 <= queue.saved[-1] <= storage.bounds(*place).maximum
    }

    def edit(table: _Table) -> bool:
        for (group, topic, queue_id), offset in saved.items():
            table.setdefault((topic, group), {})[queue_id] = offset
        return bool(saved)

    storage.change_offsets(edit)


def _moves(state: GroupState, table: _Table) -> list[_Move]:
    return [
        _Move(state.name, place, before, queue.committed)
        for place, queue in state.queues.items()
        if (before := _found(table, state.name, place)) != queue.committed
    ]


def _wait_for(stored: Sequence[Stored]) -> None:
    for future in stored:
        future.result(_WAIT_S)


def _found(table: _Table, group: str, place: QueueKey) -> int:
    topic, queue_id = place
    return table.get((topic, group), {}).get(queue_id, _NONE)
