"""Asking producers about half messages that stay undecided: RocketMQ's check service.

In each round every undecided message that is old enough is put back at the end of its queue with
one more check counted, and a producer of its group is asked about the copy. After 15 checks, or
after 72 hours, it goes to TRANS_CHECK_MAX_TIME_TOPIC instead. A message with a time of its own in
which nobody is asked is put back, too. Source: `TransactionalMessageServiceImpl.check`.

What is different, because there is no broker that lives for ever:

- A process asks only about messages of groups of which it holds a producer. Others' neither count
  nor are they discarded, and the half cursor stops at the first. What is put back behind it is
  decided by an op message in the same append, for RocketMQ to see.
- Several processes may hold producers of one group. A message is looked at once in an interval,
  whoever does it: a copy's store time says when. So the last question can still be answered, too,
  before the message is discarded.
- Nothing is counted that cannot be asked: a round takes as many as there is room for questions,
  and leaves out what this process still executes, or what an earlier question waits about.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreLockedError
from pyrocket.formats.half_message import HalfMessage, java_long
from pyrocket.formats.properties import PGROUP, REAL_QID, REAL_TOPIC, UNIQ_KEY
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC
from pyrocket.message import StoredMessage
from pyrocket.metadata.topics import TopicConfig
from pyrocket.services.transactions.keeping import move_prefix
from pyrocket.services.transactions.ledger import Ledger
from pyrocket.services.transactions.model import CheckPolicy, CheckRequest, HalfMessageRef
from pyrocket.services.transactions.records import (
    OWN_TOPICS,
    checked_once_more,
    discards,
    op_messages,
    put_backs,
    still_immune,
)

MAX_MESSAGES = 2000
MAX_BYTES = 8 * 1024 * 1024
"""Of one round: it holds the turn, and others want to write."""

_MAX_BEHIND = 16_384
"""Messages that the half cursor may stay behind because of others' undecided ones."""

_RETRY_MS = 1000
"""How long after a failure a round is tried again."""

_HOUR_MS = 3_600_000
_HALF_QUEUE = TopicConfig(HALF_TOPIC, 1, 1)


class CheckTarget(Protocol):
    """A producer that can be asked."""

    @property
    def group(self) -> str:
        """The producer group."""
        ...

    def room(self) -> int:
        """Return how many questions it can take."""
        ...

    def is_asked(self, half: HalfMessage) -> bool:
        """Whether this message is being executed, or a question about it is under way."""
        ...

    def ask(self, question: CheckRequest) -> None:
        """Take a question; its answer is an END_TRANSACTION."""
        ...

    def close(self) -> None:
        """Answer no more."""
        ...


class Verdict(Enum):
    """What a round does with an undecided half message."""

    WAIT = "it is too young, or was looked at not long ago"
    CHECK = "somebody is asked"
    IMMUNE = "it is put back, and nobody is asked yet"
    DISCARD = "it was checked too often, or is too old"


def judge(half: HalfMessage, now_ms: int, policy: CheckPolicy) -> Verdict:
    """Say what a round at that time does with an undecided half message."""
    if half.checks is not None and 0 <= now_ms - half.store_timestamp < policy.interval_ms:
        return Verdict.WAIT
    age_ms = now_ms - half.born_timestamp
    too_often = half.checks is not None and half.checks >= policy.most_checks
    if too_often or age_ms > policy.most_hours * _HOUR_MS:
        return Verdict.DISCARD
    if half.immune_s is not None:
        immune_ms = policy.timeout_ms if half.immune_s == -1 else half.immune_s * 1000
        return Verdict.IMMUNE if age_ms <= immune_ms and half.prepared != -1 else Verdict.CHECK
    # One born in the future says that the clock was set back: then nobody knows how old it is.
    return Verdict.WAIT if 0 <= age_ms <= policy.timeout_ms else Verdict.CHECK


@dataclass
class _Round:
    """What one round does, by queue offset."""

    put_back: dict[int, dict[str, str]] = field(default_factory=dict)
    discarded: dict[int, dict[str, str]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    asked: list[HalfMessage] = field(default_factory=list)
    bytes: int = 0

    @property
    def gone(self) -> set[int]:
        return {*self.put_back, *self.discarded, *self.ended}

    @property
    def is_full(self) -> bool:
        return self.bytes >= MAX_BYTES or len(self.put_back) + len(self.discarded) >= MAX_MESSAGES


class TransactionCheckService:
    """The check service of one open store. Safe to share between threads."""

    def __init__(self, ledger: Ledger, respondents: Callable[[], Collection[CheckTarget]]) -> None:
        self._ledger, self._respondents = ledger, respondents
        self._next_round = 0
        self._is_wanted = self._unsaved = False
        self._running = threading.Lock()

    def start_soon(self) -> None:
        """Have the next round at once: there is somebody new to ask."""
        self._is_wanted = True

    def run_due(self, writer: Writer, now_ms: int) -> int:
        """Make a round if it is time; return how many messages were put back or discarded.

        Called outside any turn. Raises StoreLockedError (LOCK_TIMEOUT) where somebody writes.
        """
        due = self._is_due(now_ms)
        if not (due or self._unsaved) or not self._running.acquire(blocking=False):
            return 0
        try:
            done = self._make_round(writer, now_ms) if due else 0
            self._save(writer)
            return done
        except StoreLockedError:
            raise  # Somebody writes: it is tried again after that.
        except Exception:  # Told on as it is: only the next round has to wait.
            self._next_round = now_ms + _RETRY_MS
            raise
        finally:
            self._running.release()

    def _is_due(self, now_ms: int) -> bool:
        # Where the clock was set back, the next round must not be hours away.
        waits = self._next_round - self._ledger.policy.interval_ms <= now_ms < self._next_round
        return bool(self._respondents()) and (self._is_wanted or not waits)

    def _make_round(self, writer: Writer, now_ms: int) -> int:
        ledger = self._ledger
        with writer.try_exclusive(), ledger.lock:
            self._is_wanted = False
            ledger.catch_up(writer)
            plan = self._plan(self._respondents(), now_ms)
            first_copy = ledger.undecided.end
            if plan.gone:
                self._carry_out(writer, plan)
            if ledger.undecided.behind > _MAX_BEHIND:
                ledger.catch_up(writer)
                move_prefix(ledger, writer, ledger.undecided.end - _MAX_BEHIND)
        # After, as RocketMQ does: a copy made in this round is old enough in the next.
        interval_ms = 0 if plan.is_full else ledger.policy.interval_ms
        self._next_round = ledger.clock() + interval_ms
        self._ask(plan, first_copy)
        return len(plan.gone)

    def _plan(self, respondents: Collection[CheckTarget], now_ms: int) -> _Round:
        plan, left = _Round(), _rooms(respondents)
        for half in self._ledger.undecided:
            if half.group not in left or any(one.is_asked(half) for one in respondents):
                continue
            if plan.is_full:
                break
            self._place(plan, left, half, now_ms)
        self._leave_immune(plan)
        return plan

    def _place(self, plan: _Round, left: dict[str, int], half: HalfMessage, now_ms: int) -> None:
        policy, at = self._ledger.policy, half.queue_offset
        verdict = judge(half, now_ms, policy)
        if verdict is Verdict.DISCARD:
            checks = half.checks
            fresh = checks is None or checks < policy.most_checks
            plan.discarded[at] = checked_once_more(half) if fresh else {}
            plan.bytes += half.size
        elif verdict is Verdict.IMMUNE:
            if half.prepared is not None and self._ledger.undecided.is_named(half.prepared):
                plan.ended.add(at)
            else:
                plan.put_back[at] = still_immune(half, policy.most_checks)
                plan.bytes += half.size
        elif verdict is Verdict.CHECK and left[half.group] > 0:
            left[half.group] -= 1
            plan.put_back[at] = checked_once_more(half)
            plan.bytes += half.size
            plan.asked.append(half)

    def _leave_immune(self, plan: _Round) -> None:
        """Leave immune messages where they are that the half cursor does not get past.

        An op message that named one would say to RocketMQ that its copy is decided, too.
        """
        cursor = self._ledger.undecided.settlement(plan.gone).half
        asked = {half.queue_offset for half in plan.asked}
        plan.put_back = {
            at: changes for at, changes in plan.put_back.items() if at < cursor or at in asked
        }

    def _carry_out(self, writer: Writer, plan: _Round) -> None:
        ledger = self._ledger
        settled = ledger.undecided.settlement(plan.gone)
        batches = put_backs(ledger.reader, plan.put_back)
        batches += discards(ledger.reader, plan.discarded)
        if settled.ops:
            batches.append(op_messages(settled.ops, ledger.clock()))
        rooms = {DISCARD_TOPIC: 1} if plan.discarded else {}
        ledger.make_rooms(writer, {**OWN_TOPICS, **rooms})
        writer.append(batches, moves=settled.moves, make_room=False)
        self._unsaved = True

    def _save(self, writer: Writer) -> None:
        """Tell RocketMQ durably what a round has passed without an op message.

        A clean end would do it, too; but a broker may come after a kill.
        """
        if not self._unsaved:
            return
        cursors = self._ledger.cursors(writer)
        writer.flush()  # What they say is durable from here on.
        with writer.try_exclusive():
            self._ledger.save_cursors(cursors)
        self._unsaved = False

    def _ask(self, plan: _Round, first_copy: int) -> None:
        """Give out the questions; the copies have the order of what was put back."""
        copy_of = {at: first_copy + n for n, at in enumerate(sorted(plan.put_back))}
        for half in plan.asked:
            copy = copy_of[half.queue_offset]
            (message,) = self._ledger.reader.read(_HALF_QUEUE, 0, copy, 1)
            self._give(question_of(message))

    def _give(self, question: CheckRequest) -> None:
        group = question.place.group
        able = [one for one in self._respondents() if one.group == group]
        if able:
            max(able, key=lambda one: one.room()).ask(question)


def question_of(stored: StoredMessage, record: Record | None = None) -> CheckRequest:
    """Return what is asked about a half message."""
    own = stored.properties
    place = HalfMessageRef(
        own.get(PGROUP, ""), stored.queue_offset, stored.physical_offset, own.get(UNIQ_KEY, "")
    )
    queue_id = java_long(own.get(REAL_QID, ""))
    message = replace(
        stored, topic=own.get(REAL_TOPIC, ""), queue_id=-1 if queue_id is None else queue_id
    )
    return CheckRequest(place, message, record)


def _rooms(respondents: Collection[CheckTarget]) -> dict[str, int]:
    rooms: dict[str, int] = {}
    for one in respondents:
        rooms[one.group] = rooms.get(one.group, 0) + one.room()
    return rooms
