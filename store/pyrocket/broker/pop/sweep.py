"""Moves messages with too many attempts to the retry or dead-letter topic of their group.

A copy and the ack of the original are appended together: after a crash, both exist or neither does.
If the append fails, a later sweep moves the messages.
"""

import logging
from dataclasses import dataclass, field

from pyrocket.broker.pop.draw import AttemptLimits
from pyrocket.broker.pop.events import Ack, Show
from pyrocket.broker.pop.group import GroupState, Put, QueueKey
from pyrocket.broker.pop.retries import dead_letter, retry_copy
from pyrocket.broker.pop.values import News, PopSettings, Stored, Swept
from pyrocket.errors import PyrocketError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import dead_letter_topic, retry_topic
from pyrocket.services.consumption import Consumption
from pyrocket.values.admin import GroupConfig

_MAX_MOVED = 256
_MAX_BYTES = 4 << 20
_LATER_MS = 60_000
"""Time after which a message that could not be copied is tried again."""

_log = logging.getLogger(__name__)


@dataclass
class _Moves:
    """Copies of messages, and the offsets of the originals."""

    copies: list[EncodedBatch] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    dead: int = 0
    bytes: int = 0

    def add(self, offset: int, copy: EncodedBatch | None, *, is_dead: bool) -> None:
        self.offsets.append(offset)
        if copy is not None:
            self.copies.append(copy)
            self.bytes += copy.data.size
            self.dead += is_dead


class _Overdue:
    """A message with too many attempts."""

    def __init__(self, state: GroupState, place: QueueKey, row: int) -> None:
        flight = state.queues[place].flight
        self.place, self.offset = place, int(flight.offset[row])
        self.attempts, self.since = int(flight.attempt[row]), int(flight.since[row])

    def __str__(self) -> str:
        topic, queue_id = self.place
        return f"{self.offset} of queue {queue_id} of {topic}"


class Mover:
    """Sweeps groups of one store."""

    def __init__(self, storage: Consumption, settings: PopSettings, put: Put) -> None:
        self._storage, self._settings, self._put = storage, settings, put

    def sweep(self, state: GroupState, config: GroupConfig, now: int) -> Swept:
        """Move messages with too many attempts, at most `_MAX_MOVED` of each queue."""
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
        self,
        state: GroupState,
        config: GroupConfig,
        place: QueueKey,
        rows: Ints,
        since: int,
        now: int,
    ) -> Swept:
        flight = state.queues[place].flight
        limits = AttemptLimits.of(config, self._settings)
        overdue = rows[~limits.may_deliver(flight.attempt[rows], flight.since[rows])]
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
        if config.fifo:  # The messages after a dead letter can be delivered now.
            news = (News(state.name, place[0], stored),)
        return Swept(news, moved, dead, now if len(overdue) > moved + dead else None)

    def _move(
        self, state: GroupState, config: GroupConfig, place: QueueKey, rows: Ints, now: int
    ) -> tuple[int, int, Stored]:
        """Append copies and acks; return the numbers of retries and of dead letters."""
        moves, failed = _Moves(), list[int]()
        for row in rows.tolist():
            message = _Overdue(state, place, row)
            try:
                self._copy(message, config, now, moves)
            except Exception:  # An error in one message must not stop the others.
                _log.exception("moving message %s failed and will be retried", message)
                failed.append(message.offset)
            if moves.bytes > _MAX_BYTES:
                break
        self._ensure_topics(config, has_dead=moves.dead > 0)
        group, cursor = state.name, state.queues[place].next
        later = [Show(group, *place, cursor, failed, now + _LATER_MS, 0)] if failed else []
        acks = [Ack(group, *place, cursor, moves.offsets)] if moves.offsets else []
        stored = self._put(state, [*acks, *later], moves.copies)
        return len(moves.offsets) - moves.dead, moves.dead, stored

    def _copy(self, message: "_Overdue", config: GroupConfig, now: int, moves: "_Moves") -> None:
        """Add a message and its copy to `moves`; an unreadable message has no copy."""
        is_dead, copy = message.attempts >= config.max_attempts, None
        record = self._storage.read(*message.place, message.offset)
        if record is not None:
            if not is_dead:
                # The invisible time counts towards the delay: consumers that fail set it to that.
                delay = message.since + config.backoff.delay_ms(message.attempts - 1) - now
                attempts = message.attempts
                copy = retry_copy(self._storage, record, config, attempts=attempts, delay_ms=delay)
            is_dead = copy is None
            copy = copy or dead_letter(record, config.name, attempts=message.attempts)
            self._storage.check_fits(copy)
        moves.add(message.offset, copy, is_dead=is_dead)

    def _ensure_topics(self, config: GroupConfig, *, has_dead: bool) -> None:
        dead = {dead_letter_topic(config.name): 1} if has_dead else {}
        self._storage.ensure_topics({retry_topic(config.name): max(config.retry_queues, 1), **dead})


def _log_failure(group: str, error: BaseException | None) -> None:
    if error is not None:
        _log.warning("moving messages of group %s failed and will be retried: %s", group, error)
