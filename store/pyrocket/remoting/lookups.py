"""Look-ups of messages by key or id at one broker, as `BrokerCalls` promises them."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from pyrocket.errors import OffsetOutOfRangeError, UnsupportedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.message_keys import offset_message_id, parse_offset_message_id
from pyrocket.formats.properties import KEYS, UNIQ_KEY, decode_properties
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.calls import Ask, ServerCall
from pyrocket.remoting.pulls import Window
from pyrocket.remoting.records import record_fields, records_of, selected
from pyrocket.remoting.requests import MOST_FOUND, message_at, messages_of_key, pull
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import MessageQueue

_AT_ONCE = 16
"""How many calls are made in one flight: each can have megabytes of messages as its answer."""

_SLACK_MS = 2000
"""The index of a broker has times that are up to two seconds early."""


def locate(ask: Ask, request: LookupRequest) -> LookupResult:
    """Return the locations of the messages that match the request, as far as they are indexed.

    Raises UnsupportedError (LOOKUP_INCOMPLETE) if a broker cannot list all messages of a key.
    """
    places = {text.upper(): parse_offset_message_id(text) for text in request.ids}
    offset_ids = {text: place[2] for text, place in places.items() if place and place[2] >= 0}
    calls = [message_at(at, topic) for topic in request.topics for at in offset_ids.values()]
    found = records_in_log(ask, calls)
    there = [decode_record(record) for record in found if record is not None]
    known = {record.physical_offset: record for record in (*_of_words(ask, request), *there)}
    records = [record for record in known.values() if _matches(record, request, offset_ids)]
    queues = sorted({(record.topic, record.queue_id) for record in records})
    return LookupResult(tuple(_locations(*queue, records) for queue in queues), 0, 0, len(known))


def records_in_log(ask: Ask, calls: Sequence[ServerCall[bytes | None]]) -> list[bytes | None]:
    """Make calls of `message_at`; None if no record begins at a place.

    A broker takes the bytes there for a size, and may answer with more bytes than a frame can have:
    then the calls are made one by one.
    """
    try:
        return ask(calls)
    except UnsupportedError as error:
        if error.code != "PROTOCOL_BROKEN":
            raise
        if len(calls) == 1:
            return [None]
        return [record for call in calls for record in records_in_log(ask, [call])]


def _of_words(ask: Ask, request: LookupRequest) -> Iterator[Record]:
    """Yield the records that may have one of the keys or ids: the newest first, page by page."""
    words = dict.fromkeys((*request.keys, *request.ids))
    ends = {(topic, word): request.end_ms for topic in request.topics for word in words}
    begin = max(request.begin_ms - _SLACK_MS, 0)
    while ends:
        asked = {pair: ends.pop(pair) for pair in [*ends][:_AT_ONCE]}
        calls = [messages_of_key(*pair, begin, end) for pair, end in asked.items()]
        for ((topic, word), end), answer in zip(asked.items(), ask(calls), strict=True):
            records = records_of(answer)
            yield from records
            if len(records) < MOST_FOUND:
                continue
            ends[topic, word] = min(record.store_timestamp for record in records)
            if ends[topic, word] >= end:
                raise UnsupportedError(
                    f"more than {MOST_FOUND} messages of {topic!r} that were stored within a second"
                    f" have the key {word!r}, and a broker lists only the newest of them.",
                    remedy="Read the topic, and select the messages by their column `keys`.",
                    code="LOOKUP_INCOMPLETE",
                )


def _matches(record: Record, request: LookupRequest, offset_ids: Collection[str]) -> bool:
    """Whether a record is one of the request: the broker only compares hashes."""
    properties = decode_properties(record.properties)
    unique_id = properties.get(UNIQ_KEY)
    keys = {unique_id, *properties.get(KEYS, "").split(" ")}
    is_asked = not keys.isdisjoint(request.keys) or unique_id in request.ids
    offset_id = offset_message_id(*record.store_host, record.physical_offset)
    is_in_time = request.begin_ms <= record.store_timestamp <= request.end_ms
    return record.topic in request.topics and is_in_time and (is_asked or offset_id in offset_ids)


def _locations(topic: str, queue_id: int, records: Sequence[Record]) -> MessageLocations:
    of_queue = [row for row in records if (row.topic, row.queue_id) == (topic, queue_id)]
    rows = sorted((record.queue_offset, record.physical_offset, record.size) for record in of_queue)
    return MessageLocations.of(topic, queue_id, *np.array(rows).T)


def slices_at(
    ask: Ask,
    queue: MessageQueue,
    at: MessageLocations,
    group: str,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages at these locations of a queue that match `where`, in order.

    Raises OffsetOutOfRangeError for one that has expired, RecordDamagedError, UnsupportedError.
    """
    offsets = at.queue_offsets.tolist()
    for first in range(0, len(offsets), _AT_ONCE):
        wanted = offsets[first : first + _AT_ONCE]
        calls = [pull(queue.topic, queue.queue_id, offset, 1, group) for offset in wanted]
        answers = [answer.records for answer in ask(calls)]
        if missing := [offset for offset, data in zip(wanted, answers, strict=True) if not data]:
            raise OffsetOutOfRangeError(
                f"{queue} of the broker {queue.broker} no longer has the message {missing[0]}.",
                remedy="Look the messages up again.",
            )
        parts = [
            Window(offset, offset + 1, offset + 1, [data])
            for offset, data in zip(wanted, answers, strict=True)
        ]
        fields = selected(record_fields(queue, parts), where, tally, len(wanted))
        if len(fields):
            yield RecordSlice(queue, fields)
