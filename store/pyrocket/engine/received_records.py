"""Checks records that another process has encoded, as recovery checks the records of a log.

The records have no offsets, store times and whole-record checksums yet; an append sets these. Index
entries are derived from the records, so that no client can make an index differ from the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.errors import MessageError
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.compression import COMPRESSED_FLAGS, inflated_bytes
from pyrocket.formats.message_keys import keys_of_batch
from pyrocket.formats.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_BYTES,
    REAL_QID,
    REAL_TOPIC,
    RESERVED_PROPERTIES,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from pyrocket.formats.property_columns import numbers, real_places
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_batch import EncodedBatch, with_crc_room
from pyrocket.formats.record_crc import OUR_HOST
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.formats.wire_block import decode_records
from pyrocket.index.queues.dispatcher import tags_codes
from pyrocket.log.commit_log import Placed
from pyrocket.log.valid_end import record_fault, whole_records
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.message import AppendResult

_OF_ANY_TOPIC = frozenset([UNIQ_KEY, KEYS, TAGS, SHARDING_KEY, TIMER_DELIVER_MS])
_OF_DELAYED = _OF_ANY_TOPIC | {REAL_TOPIC, REAL_QID, DELAY, TIMER_OUT_MS}
_TIME = "^[0-9]{1,18}$"
_ENCODE = "Encode messages with a client of pyrocket."


@dataclass(frozen=True)
class ReceivedRecords:
    """Checked records, and the write queues of the topics to which they were sent."""

    routes: Mapping[str, int]
    batches: Sequence[EncodedBatch]

    @property
    def bytes(self) -> int:
        return sum(batch.data.size for batch in self.batches)


@dataclass(frozen=True)
class StoredRecords(AppendResult):
    """The result of appending received records, with the place of each batch."""

    appended: Sequence[Placed] = ()


class RecordCheck:
    """Checks records for one store."""

    def __init__(self, config: StoreConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock

    def check(self, routes: Mapping[str, int], block: bytes) -> EncodedBatch:
        """Check the records of a block, and return them; they use the block's memory.

        `routes` maps each topic to the number of write queues that the sender assumed. Raises
        MessageError, TopicNameError.
        """
        for topic in routes:
            check_topic_name(topic)
        return self._batch(_Run(block), routes)

    def _batch(self, run: "_Run", routes: Mapping[str, int]) -> EncodedBatch:
        longest = self._config.max_message_bytes
        run.demand(
            run.fields.body_length <= longest,
            f"its body has more than {longest} bytes",
            "BODY_TOO_LARGE",
            "Split it, or raise max_message_bytes of the broker.",
        )
        run.demand_inflation(longest)
        if run.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            run.demand_properties(_OF_DELAYED)
            run.demand_homes(routes)
        else:
            run.demand_properties(_OF_ANY_TOPIC)
            run.demand(run.topic in routes, "its topic is not one of the request", "TOPIC_ILLEGAL")
            queues = routes[run.topic]
            run.demand_queues((run.queue_ids >= 0) & (run.queue_ids < queues))
        codes = tags_codes(run.fields, self._config.delay_levels_ms)
        batch = EncodedBatch(
            topic=run.topic,
            data=run.fields.buffer,
            bounds=np.append(run.fields.starts, run.fields.buffer.size),
            queue_ids=run.queue_ids.astype(np.int32),
            tags_codes=codes,
            keys=keys_of_batch(run.topic, run.ids, run.properties.column(KEYS)),
            delays=self._delays(run, codes) if run.topic == SCHEDULE_TOPIC else None,
            due=self._due(run) if run.topic == TIMER_TOPIC else None,
        )
        config = self._config
        return with_crc_room(batch, config.log_file_bytes) if config.property_crc else batch

    def _delays(self, run: "_Run", codes: Ints) -> Ints:
        levels = numbers(run.properties.column(DELAY), "^[0-9]{1,9}$")
        run.demand((levels > 0) & (levels <= len(self._config.delay_levels_ms)), "no such level")
        run.demand_queues(run.queue_ids == levels - 1)
        return codes.copy()

    def _due(self, run: "_Run") -> int:
        dues = numbers(run.properties.column(TIMER_OUT_MS), _TIME)
        run.demand_queues(run.queue_ids == 0)
        run.demand(dues >= 0, "it has no due time")
        longest = self._config.timer_max_delay_ms
        run.demand(
            dues - self._clock() <= longest,
            f"it is due more than {longest} ms from now",
            "TIMER_TOO_FAR",
            "Send it later, or raise timer_max_delay of the broker.",
        )
        return int(dues.min())


class _Run:
    """Consecutive records of one topic with valid structure and checksums."""

    def __init__(self, block: bytes) -> None:
        self.fields = _placed(block)
        count = whole_records(self.fields)
        if count < len(self.fields):
            start = int(self.fields.starts[count])
            size = int(self.fields.sizes[count])
            record = memoryview(self.fields.buffer)[start : start + size]
            raise _refused(count, record_fault(record, start), "RECORD_CORRUPT")
        self.topic = self.fields.topics[0].as_py().decode()
        self.queue_ids = self.fields.queue_id
        self.properties = self.fields.property_columns
        self._check()

    def _check(self) -> None:
        fields, demand = self.fields, self.demand
        same = fields.topics.dictionary_encode()
        demand(same.indices.to_numpy() == 0, "its topic differs from the topic of record 0")
        flags = fields.sys_flag
        demand((flags == 0) | (flags == COMPRESSED_FLAGS), f"its sysFlag is not {COMPRESSED_FLAGS}")
        demand(fields.has_store_host(OUR_HOST), "its store host is not pyrocket's")
        lengths = fields.properties_length
        demand(lengths <= MAX_PROPERTIES_BYTES, "its properties are too long")
        self.ids = self.properties.column(UNIQ_KEY)
        demand(self.ids.is_valid().to_numpy(zero_copy_only=False), f"it has no {UNIQ_KEY}")

    def demand_inflation(self, longest: int) -> None:
        """Raise MessageError for a compressed body that does not inflate, or to too many bytes."""
        data, fields = memoryview(self.fields.buffer), self.fields
        for row in np.flatnonzero(fields.sys_flag).tolist():
            start, length = int(fields.body_start[row]), int(fields.body_length[row])
            inflated = inflated_bytes(bytes(data[start : start + length]), longest)
            if inflated is None:
                raise _refused(row, "its compressed body does not inflate.", "BODY_CORRUPT")
            if inflated > longest:
                raise _refused(
                    row,
                    f"its compressed body inflates to more than {longest} bytes.",
                    "BODY_TOO_LARGE",
                    "Split it, or raise max_message_bytes of the broker.",
                )

    def demand_properties(self, allowed: frozenset[str]) -> None:
        """Raise MessageError for properties that only brokers set."""
        reserved = self.properties.names & RESERVED_PROPERTIES - allowed
        self.demand(not reserved, f"it has the reserved properties {sorted(reserved)}")

    def demand_homes(self, routes: Mapping[str, int]) -> None:
        """Check the topics and queues to which delayed messages will be delivered."""
        homes = real_places(self.properties)
        queues = np.array([*(routes.get(name, 0) for name in homes.names), 0])[homes.codes]
        self.demand(queues > 0, "its topic is not one of the request", "TOPIC_ILLEGAL")
        self.demand_queues((homes.queue_ids >= 0) & (homes.queue_ids < queues))

    def demand_queues(self, holds: Bools) -> None:
        """Raise MessageError for the first record whose queue is missing."""
        self.demand(holds, "its topic has no such write queue", "QUEUE_NOT_FOUND")

    def demand(
        self, holds: Bools | bool, reason: str, code: str = "RECORD_ILLEGAL", remedy: str = _ENCODE
    ) -> None:
        """Raise MessageError for the first record for which `holds` is false."""
        if not np.all(holds):
            raise _refused(int(np.argmin(holds)), f"{reason}.", code, remedy)


def _placed(block: bytes) -> RecordFields:
    """Return the records as if their buffer were the log; fields that an append sets are zero."""
    try:
        buffer, sizes = decode_records(block)
    except ValueError as error:
        raise _refused(0, f"there is no block of records: {error}.", "RECORD_CORRUPT") from None
    if sizes.min() < FIXED_BYTES:
        raise _refused(int(sizes.argmin()), "it is too short for a record.", "RECORD_CORRUPT")
    bounds = np.append(0, np.cumsum(sizes))
    batch = EncodedBatch("", buffer, bounds, np.zeros(0, np.int32), np.zeros(0, np.int64))
    batch.place(bounds[:-1], np.zeros(len(sizes), np.int64), 0)
    return RecordFields(buffer, 0, bounds[:-1], sizes)


def _refused(row: int, reason: str, code: str, remedy: str = _ENCODE) -> MessageError:
    return MessageError(
        f"record {row} of the request is refused: {reason}", remedy=remedy, code=code
    )
