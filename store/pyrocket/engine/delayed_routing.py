"""Routes delayed messages to RocketMQ's system topics, and sets their properties.

A message of delay level n is stored in queue n - 1 of the schedule topic, and is due when the
level's delay has passed since its store time. A message with a due time is stored in queue 0 of the
timer topic. In both cases, properties of the message contain the topic and queue to deliver to. A
message whose due time has passed is not delayed; only a property is set. Source:
`CommitLog.asyncPutMessage` (4.9), `HookUtils.handleScheduleMessage` (5.x, which rounds TIMER_OUT_MS
down to a second; here it is exact).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.config import StoreConfig
from pyrocket.errors import MessageError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import DELAY, REAL_QID, REAL_TOPIC, TIMER_DELIVER_MS, TIMER_OUT_MS
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import SendColumns
from pyrocket.formats.system_topics import SCHEDULE_QUEUES, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.values.message import Message

QueueIds = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Destination:
    """The queue in which a record is stored, and the system properties that it gets.

    `delay_ms` is relative to the store time, `due_ms` to the epoch; both are None if the record is
    not delayed.
    """

    topic: str
    queue_id: int
    properties: Mapping[str, str]
    delay_ms: int | None = None
    due_ms: int | None = None

    def schedule(self, record: EncodedBatch) -> EncodedBatch:
        """Return a batch of one record with the times of this destination."""
        delays = None if self.delay_ms is None else np.array([self.delay_ms])
        return replace(record, delays=delays, due=self.due_ms)


@dataclass(frozen=True)
class RoutedRows:
    """The rows of a batch that are stored in one topic.

    `rows` contains their numbers, or is None for all rows. `columns` includes the system properties
    of each row's `Destination`; `delays` and `dues` are its `delay_ms` and `due_ms`.
    """

    topic: str
    rows: Ints | None
    columns: SendColumns
    queue_ids: QueueIds
    delays: Ints | None = None
    dues: Ints | None = None

    def take(self, order: pa.Array) -> "RoutedRows":
        """Return the rows in another order."""
        at = order.to_numpy()
        return RoutedRows(
            self.topic,
            at if self.rows is None else self.rows[at],
            self.columns.take(order),
            self.queue_ids[at],
            None if self.delays is None else self.delays[at],
            None if self.dues is None else self.dues[at],
        )


class DelayRouter:
    """Routes messages by the delay levels of one store and its limit for due times."""

    def __init__(self, config: StoreConfig) -> None:
        self._levels, self._max_ms = config.delay_levels_ms, config.timer_max_delay_ms

    def destination(self, message: Message, topic: str, queue_id: int, now: int) -> Destination:
        """Return the destination of a message for a queue. Raises MessageError (TIMER_TOO_FAR)."""
        home = {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        level = min(message.delay_level, len(self._levels))
        if level > 0:
            own = {DELAY: str(level), **home}
            return Destination(SCHEDULE_TOPIC, level - 1, own, delay_ms=self._levels[level - 1])
        if message.deliver_at_ms is None:
            return Destination(topic, queue_id, {})
        due_ms = max(message.deliver_at_ms, 0)
        own = {TIMER_DELIVER_MS: str(due_ms)}
        if due_ms <= now:
            return Destination(topic, queue_id, own)
        if due_ms - now > self._max_ms:
            raise self._too_far("the message is", due_ms - now)
        own |= {TIMER_OUT_MS: str(due_ms), **home}
        return Destination(TIMER_TOPIC, 0, own, due_ms=due_ms)

    def split(
        self, columns: SendColumns, topic: str, queue_ids: QueueIds, now: int
    ) -> Iterator[RoutedRows]:
        """Yield the rows by the topic that stores them. Raises MessageError with the row number."""
        due_at, level = due_times(columns, now), columns.delay_level
        if due_at is None and level is None:
            yield RoutedRows(topic, None, columns, queue_ids)
            return
        levels = np.minimum(_filled(level, len(columns)), len(self._levels))
        dues = _filled(due_at, len(columns))
        far = dues - now > self._max_ms
        if far.any():
            row = int(np.argmax(far))
            raise self._too_far(f"row {row} is", int(dues[row]) - now)
        columns = replace(columns, delay_level=None, delay=None, deliver_at=None)
        if due_at is not None:
            columns = with_properties(columns, number_property(TIMER_DELIVER_MS, due_at))
        timed, leveled = np.flatnonzero(dues > now), np.flatnonzero(levels > 0)
        rest = np.flatnonzero((dues <= now) & (levels == 0))
        if len(rest):
            yield _pick(topic, rest, columns, queue_ids)
        if len(leveled):
            routed, own = _pick(topic, leveled, columns, queue_ids), levels[leveled]
            waits, queues = number_property(DELAY, pa.array(own)), (own - 1).astype(np.int32)
            routed = _diverted(routed, SCHEDULE_TOPIC, queues, waits)
            yield replace(routed, delays=np.array(self._levels, np.int64)[own - 1])
        if len(timed):
            routed, own = _pick(topic, timed, columns, queue_ids), dues[timed]
            waits = number_property(TIMER_OUT_MS, pa.array(own))
            queues = np.zeros(len(own), np.int32)
            yield replace(_diverted(routed, TIMER_TOPIC, queues, waits), dues=own)

    def _too_far(self, what: str, ahead_ms: int) -> MessageError:
        return MessageError(
            f"{what} due {ahead_ms} ms from now; the maximum is {self._max_ms}.",
            remedy="Send it later, or raise timer_max_delay_ms: timerMaxDelay of a Spark write, and"
            " timer_max_delay of a broker.",
            code="TIMER_TOO_FAR",
        )

    def rooms(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the queue counts of the system topics for delayed messages among `topics`.

        RocketMQ gives the schedule topic 18 queues, even if there are fewer levels.
        """
        queues = {SCHEDULE_TOPIC: max(SCHEDULE_QUEUES, len(self._levels)), TIMER_TOPIC: 1}
        return {topic: queues[topic] for topic in topics if topic in queues}


def due_times(columns: SendColumns, now: int) -> pa.Int64Array | None:
    """Return the due times, in epoch ms, of the rows that have a due time."""
    if columns.delay is None:
        return columns.deliver_at
    after = pc.add(columns.delay, now)
    return after if columns.deliver_at is None else pc.coalesce(columns.deliver_at, after)


def _filled(numbers: pa.Int64Array | None, count: int) -> Ints:
    return np.zeros(count, np.int64) if numbers is None else pc.fill_null(numbers, 0).to_numpy()


def _pick(topic: str, rows: Ints, columns: SendColumns, queue_ids: QueueIds) -> RoutedRows:
    if len(rows) == len(columns):
        return RoutedRows(topic, None, columns, queue_ids)
    return RoutedRows(topic, rows, columns.take(pa.array(rows)), queue_ids[rows])


def _diverted(
    routed: RoutedRows, topic: str, queue_ids: QueueIds, waits: pa.StringArray
) -> RoutedRows:
    """Return the rows for a system topic, with their wait and where to deliver them to."""
    to = pa.scalar(f"{REAL_TOPIC}\x01{routed.topic}\x02")
    own = waits, to, number_property(REAL_QID, pa.array(routed.queue_ids))
    columns = with_properties(routed.columns, *own)
    return replace(routed, topic=topic, columns=columns, queue_ids=queue_ids)


def number_property(name: str, numbers: pa.Array) -> pa.StringArray:
    """Return each row's encoded property, empty for null."""
    text = pc.binary_join_element_wise(f"{name}\x01", numbers.cast(pa.string()), "\x02", "")
    return pc.fill_null(text, "")


def with_properties(columns: SendColumns, *blocks: pa.StringArray | pa.StringScalar) -> SendColumns:
    before = () if columns.properties is None else (columns.properties,)
    return replace(columns, properties=pc.binary_join_element_wise(*before, *blocks, ""))
