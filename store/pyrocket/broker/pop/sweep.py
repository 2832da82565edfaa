"""Moves messages that were delivered too often to the retry or dead-letter topic of their group.

A copy and the ack of the original are one append: a crash leaves both or neither. If it fails, they
are moved later.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from pyrocket.broker.pop.events import Ack, Event
from pyrocket.broker.pop.group import GroupState, Place
from pyrocket.broker.pop.queue import QueueState
from pyrocket.broker.pop.retries import (
    dead_letter,
    dead_letter_topic,
    retry_copy,
    retry_topic,
)
from pyrocket.broker.pop.values import News, PopSettings, Stored, Swept
from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record
from pyrocket.metadata.groups import GroupConfig
from pyrocket.services.consumption import Consumption

_MAX_MOVED = 256
_MAX_BYTES = 4 << 20
_EVERYTHING = MessageFilter()
_log = logging.getLogger(__name__)

Put = Callable[[GroupState, Sequence[Event], Sequence[EncodedBatch]], Stored]


class Mover:
    """Sweeps groups of one store."""

    def __init__(self, storage: Consumption, settings: PopSettings, put: Put) -> None:
        self._storage, self._settings, self._put = storage, settings, put

    def sweep(self, state: GroupState, config: GroupConfig, now: int) -> Swept:
        """Move what was delivered too often, at most `_MAX_MOVED` messages of each queue."""
        done = Swept()
        with state.lock:
            since, state.swept_ms = state.swept_ms, now
            for place, queue in [*state.queues.items()]:
                if not len(queue.flight):
                    continue
                rows = queue.flight.visible_rows(now)
                if len(rows):
                    done = done.plus(self._sweep(state, config, place, rows, since, now))
                done = done.plus(Swept(next_ms=queue.flight.next_after(now)))
        return done

    def _sweep(
        self, state: GroupState, config: GroupConfig, place: Place, rows: Ints, since: int, now: int
    ) -> Swept:
        flight = state.queues[place].flight
        overdue = rows[self._is_overdue(config, flight.attempt[rows], flight.since[rows])]
        shown = flight.visible[rows]
        is_news = len(overdue) < len(rows) and bool((shown > since).any())
        news = (News(state.name, place[0]),) if is_news else ()
        if not len(overdue):
            return Swept(news)
        try:
            moved, dead, stored = self._move(state, config, place, overdue[:_MAX_MOVED], now)
        except (PyrocketError, OSError) as error:
            _log_failure(state.name, error)
            return Swept(news)
        stored.add_done_callback(lambda done: _log_failure(state.name, done.exception()))
        if config.fifo:  # The messages after a dead one are next.
            news = (News(state.name, place[0], stored),)
        return Swept(news, moved, dead, now if len(overdue) > moved + dead else None)

    def _is_overdue(
        self, config: GroupConfig, attempts: Ints, since: Ints
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        dead = attempts >= config.max_attempts
        if config.fifo or config.retry_queues <= 0:
            return np.asarray(dead)
        return np.asarray(dead | ((attempts >= self._settings.first_attempts) & (since > 0)))

    def _move(
        self, state: GroupState, config: GroupConfig, place: Place, rows: Ints, now: int
    ) -> tuple[int, int, Stored]:
        queue, group = state.queues[place], state.name
        copies: list[EncodedBatch] = []
        offsets, size, dead = list[int](), 0, 0
        for row in rows.tolist():
            offset, attempts = int(queue.flight.offset[row]), int(queue.flight.attempt[row])
            is_dead = attempts >= config.max_attempts
            record = self._storage.read(*place, offset)
            if record is not None:
                copies.append(
                    dead_letter(record, group, attempts=attempts)
                    if is_dead
                    else self._retry(record, queue, row, config, now)
                )
                size += copies[-1].data.size
                dead += is_dead
            offsets.append(offset)
            if size > _MAX_BYTES:
                break
        self._ensure_topics(config, has_dead=dead > 0)
        stored = self._put(state, [Ack(group, *place, queue.next, offsets)], copies)
        return len(offsets) - dead, dead, stored

    def _retry(
        self, record: Record, queue: QueueState, row: int, config: GroupConfig, now: int
    ) -> EncodedBatch:
        flight = queue.flight
        attempts, since = int(flight.attempt[row]), int(flight.since[row])
        # The invisible time is a part of the delay: a consumer that fails sets it to the delay.
        delay = since + config.backoff.delay_ms(attempts - 1) - now
        levels = self._storage.delay_levels_ms
        return retry_copy(
            record,
            config.name,
            queues=config.retry_queues,
            attempts=attempts,
            delay_ms=delay,
            levels=levels,
        )

    def _ensure_topics(self, config: GroupConfig, *, has_dead: bool) -> None:
        queues = {retry_topic(config.name): max(config.retry_queues, 1)}
        if has_dead:
            queues[dead_letter_topic(config.name)] = 1
        self._storage.ensure_topics(queues)


def _log_failure(group: str, error: BaseException | None) -> None:
    if error is not None:
        _log.warning("messages of group %s are moved later: %s", group, error)
