"""Checks half messages that stay undecided, as RocketMQ's transaction check service does.

In a round, every undecided message that is due is re-appended to its queue with an incremented
check counter, and a producer of its group is asked about the copy. After 15 checks or 72 hours the
message is appended to TRANS_CHECK_MAX_TIME_TOPIC instead. A message within its immunity time is
also re-appended, but its producer is not asked. Source: `TransactionalMessageServiceImpl.check`.

RocketMQ runs a round per interval. Here a round runs when the first message is due, so that a first
check comes soon after the timeout; each message is checked at most once per interval. Because no
broker runs all the time, three more things differ:

- A process checks only messages of groups for which it has a producer. Other messages are neither
  counted nor discarded, and the half cursor stops at the first of them. A message after the cursor
  is ended by an op message in the same append, which RocketMQ also reads.
- Several processes may have producers of one group. Together they check a message once per
  interval; the store time of the newest copy is the time of the last check. So a producer can also
  answer the last check before the message is discarded.
- Only checks that reach a producer are counted: a round takes only as many messages of a group as
  its producers accept. Groups take turns within a round, because their producers may share a
  connection. If a producer refuses a request nevertheless, it is asked about the same copy later.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum

from pyrocket.disk.shared_state import NEVER
from pyrocket.engine.writer import Writer
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError, StoreLockedError
from pyrocket.formats.fastjson import parse_java_long
from pyrocket.formats.half_message import HalfMessage
from pyrocket.formats.properties import PGROUP, REAL_QID, REAL_TOPIC, UNIQ_KEY
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC
from pyrocket.services.transactions.bridge import TransactionBridge
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.services.transactions.records import checked_copies, count_check, keep_immune
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import StoredMessage
from pyrocket.values.transactions import CheckPolicy, HalfMessageRef

_RETRY_MS = 1000
"""Time between two rounds, unless more messages are due than fit into one."""

_HOUR_MS = 3_600_000
_HALF_QUEUE = TopicConfig(HALF_TOPIC, 1, 1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CheckTarget:
    """A producer that can be asked.

    Attributes:
        group: The producer group.
        room: Returns the number of requests that the producer accepts.
        ask: Accepts a request, or returns False. The answer is a call of `Transactions.end`.
    """

    group: str
    room: Callable[[], int]
    ask: Callable[[CheckRequest], bool]


class CheckAction(Enum):
    """The action of a round for an undecided half message."""

    WAIT = "too young, or checked within the interval"
    CHECK = "appended again, and its producer is asked"
    RENEW = "immune: appended again, and its producer is not asked"
    DISCARD = "checked too often, or too old"


def decide(half: HalfMessage, now_ms: int, policy: CheckPolicy) -> CheckAction:
    """Return the action of a round at this time for an undecided half message."""
    if half.checks is not None and 0 <= now_ms - half.store_timestamp < policy.interval_ms:
        return CheckAction.WAIT
    age_ms = now_ms - half.born_timestamp
    too_often = half.checks is not None and half.checks >= policy.max_checks
    if too_often or age_ms > policy.max_hours * _HOUR_MS:
        return CheckAction.DISCARD
    if half.immune_s is not None:
        immune_ms = policy.timeout_ms if half.immune_s == -1 else half.immune_s * 1000
        is_immune = age_ms <= immune_ms and half.prepared != -1
        return CheckAction.RENEW if is_immune else CheckAction.CHECK
    # A born time in the future means that the clock was set back and the age is unknown.
    return CheckAction.WAIT if 0 <= age_ms <= policy.timeout_ms else CheckAction.CHECK


def next_check(half: HalfMessage, policy: CheckPolicy) -> int:
    """Return the first time (epoch ms) at which `decide` may return CHECK or DISCARD."""
    renewed = 0 if half.checks is None else half.store_timestamp + policy.interval_ms
    immune_s = half.immune_s
    first_ms = policy.timeout_ms if immune_s is None or immune_s == -1 else immune_s * 1000
    return max(renewed, half.born_timestamp + first_ms + 1)


@dataclass
class _Round:
    """The plan of one group's part of a round, by queue offset.

    owed: Messages about which the producer has to be asked without a new copy.
    lacks_room: Whether messages are due that the producers do not accept.
    """

    policy: CheckPolicy
    room: int
    renews: bool
    owed: list[int] = field(default_factory=list)
    lacks_room: bool = False
    renewed: dict[int, dict[str, str]] = field(default_factory=dict)
    discarded: dict[int, dict[str, str]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    asked: list[HalfMessage] = field(default_factory=list)
    bytes: int = 0

    @property
    def all_ended(self) -> set[int]:
        """The originals that this round ends."""
        return {*self.renewed, *self.discarded, *self.ended}

    @property
    def is_full(self) -> bool:
        count = len(self.renewed) + len(self.discarded)
        return self.bytes >= self.policy.max_append_bytes or count >= self.policy.max_messages


class TransactionCheckService:
    """The check service of one open store; thread-safe."""

    def __init__(
        self, bridge: TransactionBridge, targets: Callable[[], Collection[CheckTarget]]
    ) -> None:
        self._bridge, self._targets = bridge, targets
        self._next_round = self._next_renewal = 0
        self._is_wanted = self._unsaved = False
        self._owed: set[int] = set()
        self._full: set[str] = set()
        self._running = threading.Lock()

    def start_soon(self) -> None:
        """Make the next round due at once, for a new producer."""
        self._is_wanted = True

    def run_due(self, writer: Writer, now_ms: int) -> int:
        """Run a round if one is due; return the number of messages that it changed.

        The caller must not hold the write lock. Raises StoreLockedError (LOCK_TIMEOUT) if another
        thread or process holds it.
        """
        due = self._is_due(now_ms)
        if not (due or self._unsaved) or not self._running.acquire(blocking=False):
            return 0
        try:
            changed = self._run_round(writer, now_ms) if due else 0
            self._save_cursors(writer)
            return changed
        except StoreLockedError:
            raise  # The round stays due.
        except Exception:
            self._next_round = now_ms + _RETRY_MS
            raise
        finally:
            self._running.release()

    def _is_due(self, now_ms: int) -> bool:
        # If the clock was set back, the next round must not be hours away.
        policy = self._bridge.policy
        longest = max(policy.interval_ms, policy.timeout_ms, _RETRY_MS)
        waits = self._next_round - longest <= now_ms < self._next_round
        targets = self._targets()
        has_room = any(target.room() > 0 for target in targets if target.group in self._full)
        return bool(targets) and (self._is_wanted or has_room or not waits)

    def _run_round(self, writer: Writer, now_ms: int) -> int:
        bridge, policy = self._bridge, self._bridge.policy
        renews = not self._next_renewal - policy.interval_ms <= now_ms < self._next_renewal
        with bridge.exclusive(writer, wait=False):
            self._is_wanted = False
            groups, next_ms = self._due(now_ms, renews=renews)
            self._limit_backlog(writer)
        plans = {group: self._run_group(writer, group, now_ms, renews=renews) for group in groups}
        self._full = {group for group, plan in plans.items() if plan.lacks_room}
        # Counted from the end of the round, so that its copies are old enough in the next round.
        end = bridge.clock()
        if renews:
            self._next_renewal = end + policy.interval_ms
        soonest = end + min(_RETRY_MS, policy.interval_ms)
        if any(plan.is_full for plan in plans.values()):
            self._next_round = end
        elif self._full or self._owed:
            self._next_round = soonest
        else:
            latest = min(now_ms + policy.timeout_ms, end + policy.interval_ms)
            self._next_round = max(soonest, min(next_ms, latest))
        return sum(len(plan.all_ended) for plan in plans.values())

    def _due(self, now_ms: int, *, renews: bool) -> tuple[Collection[str], int]:
        """Return the groups with due messages, and the time at which the next message is due."""
        policy, next_ms = self._bridge.policy, NEVER
        self._owed &= {half.queue_offset for half in self._bridge.halves}
        groups = {target.group: False for target in self._targets()}
        for half in self._bridge.halves:
            if half.group not in groups:
                continue
            action = decide(half, now_ms, policy)
            waits = action is CheckAction.WAIT and half.queue_offset not in self._owed
            if waits or (action is CheckAction.RENEW and not renews):
                next_ms = min(next_ms, next_check(half, policy))
            else:
                groups[half.group] = True
        return [group for group, is_due in groups.items() if is_due], next_ms

    def _run_group(self, writer: Writer, group: str, now_ms: int, *, renews: bool) -> _Round:
        bridge = self._bridge
        room = sum(target.room() for target in self._targets() if target.group == group)
        with bridge.exclusive(writer, wait=False):
            plan = self._plan(group, _Round(bridge.policy, room, renews), now_ms)
            first_copy = bridge.halves.end
            if plan.all_ended:
                self._append(writer, plan)
        self._ask(plan, first_copy)
        return plan

    def _limit_backlog(self, writer: Writer) -> None:
        """Re-append the first messages if they hold the half cursor back too far."""
        bridge = self._bridge
        if bridge.halves.backlog > bridge.policy.max_backlog:
            bridge.catch_up(writer)
            end = bridge.halves.end - bridge.policy.max_backlog
            bridge.append_again(writer, [half for half in bridge.halves if half.queue_offset < end])

    def _plan(self, group: str, plan: _Round, now_ms: int) -> _Round:
        for half in self._bridge.halves:
            if half.group != group:
                continue
            if plan.is_full:
                break
            self._add(plan, half, now_ms)
        self._leave_immune(plan)
        return plan

    def _add(self, plan: _Round, half: HalfMessage, now_ms: int) -> None:
        policy, at = self._bridge.policy, half.queue_offset
        action = decide(half, now_ms, policy)
        asks = action is CheckAction.CHECK or (action is CheckAction.WAIT and at in self._owed)
        if action is CheckAction.DISCARD:
            checks = half.checks
            countable = checks is None or checks < policy.max_checks
            plan.discarded[at] = count_check(half) if countable else {}
        elif action is CheckAction.RENEW and plan.renews:
            if half.prepared is not None and self._bridge.halves.is_named(half.prepared):
                plan.ended.add(at)
                return
            plan.renewed[at] = keep_immune(half, policy.max_checks)
        elif asks and plan.room <= 0:
            plan.lacks_room = True
            return
        elif asks and at in self._owed:
            plan.room -= 1
            plan.owed.append(at)
            return
        elif asks:
            plan.room -= 1
            plan.renewed[at] = count_check(half)
            plan.asked.append(half)
        else:
            return
        plan.bytes += half.size

    def _leave_immune(self, plan: _Round) -> None:
        """Do not renew immune messages unless the half cursor moves past them.

        For RocketMQ, an op message for such a message would also end its copy.
        """
        cursor = self._bridge.halves.plan_end(plan.all_ended).half
        asked = {half.queue_offset for half in plan.asked}
        plan.renewed = {
            at: changes for at, changes in plan.renewed.items() if at < cursor or at in asked
        }

    def _append(self, writer: Writer, plan: _Round) -> None:
        bridge = self._bridge
        batches = checked_copies(bridge.reader, plan.renewed)
        if plan.discarded:
            bridge.ensure_topics({DISCARD_TOPIC: 1})
            batches += checked_copies(bridge.reader, plan.discarded, discard=True)
        bridge.append(writer, batches, plan.all_ended)
        self._unsaved = True

    def _save_cursors(self, writer: Writer) -> None:
        """Save the cursors durably: they end messages without an op message for RocketMQ.

        A clean shutdown also saves them, but a broker may start after a kill.
        """
        if not self._unsaved:
            return
        cursors = self._bridge.cursors(writer)
        writer.flush()  # Now all messages before these cursors are durable.
        with writer.try_exclusive():
            self._bridge.save_cursors(cursors)
        self._unsaved = False

    def _ask(self, plan: _Round, first_copy: int) -> None:
        """Send the requests; the copies are in the order of their originals."""
        copy_of = {at: first_copy + n for n, at in enumerate(sorted(plan.renewed))}
        self._owed.update(copy_of[half.queue_offset] for half in plan.asked)
        for at in [*plan.owed, *(copy_of[half.queue_offset] for half in plan.asked)]:
            message = self._read(at)
            if message is not None and not self._send(check_request(message)):
                return
            self._owed.discard(at)

    def _read(self, at: int) -> StoredMessage | None:
        """Return a half message; None if it is damaged, so that it does not stop all checks.

        If an original was damaged, there are fewer copies.
        """
        try:
            return next(iter(self._bridge.reader.read(_HALF_QUEUE, 0, at, 1)), None)
        except (OffsetOutOfRangeError, StoreDamagedError) as error:
            _log.error("a half message cannot be checked: %s", error)
            return None

    def _send(self, request: CheckRequest) -> bool:
        able = [target for target in self._targets() if target.group == request.half.group]
        return bool(able) and max(able, key=lambda target: target.room()).ask(request)


def check_request(stored: StoredMessage, record: Record | None = None) -> CheckRequest:
    """Return the request about a stored half message."""
    properties = stored.properties
    half = HalfMessageRef(
        properties.get(PGROUP, ""),
        stored.queue_offset,
        stored.physical_offset,
        properties.get(UNIQ_KEY, ""),
    )
    queue_id = parse_java_long(properties.get(REAL_QID, ""))
    message = replace(
        stored, topic=properties.get(REAL_TOPIC, ""), queue_id=-1 if queue_id is None else queue_id
    )
    return CheckRequest(half, message, record)
