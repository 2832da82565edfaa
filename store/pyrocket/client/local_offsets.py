"""The starts and offsets of broadcasting consumers, in files on their own machine.

The file of offsets has RocketMQ's name and format:
`~/.rocketmq_offsets/<client id>/<group>/offsets.json`. Its previous content is in
`offsets.json.bak`. The keys are objects, which standard JSON does not allow:

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}}

Beside it, `start.json` has where the consumer starts in queues without an offset; RocketMQ has no
such file:

    {"version":1,"starts":{"orders":{"broker-a":
        {"logOffset":4711,"timeMs":1700000000000,"metMs":1700000000123}}}}

`logOffset` and `timeMs` are the broker's, with `endOffset` for a start by time (see `GroupStart`);
`metMs` is the time of this machine.

Source: `LocalFileOffsetStore`.
"""

import asyncio
import json
import logging
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pyrocket.base.clock import system_clock
from pyrocket.client.core.offsets import END, BrokerOffsets, OffsetStore, later
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.errors import StoreDamagedError
from pyrocket.values.consuming import Committed, GroupPosition, GroupStart, MessageModel
from pyrocket.values.message import MessageQueue

_ENTRY = re.compile(r"(\{[^{}]*\})\s*:\s*(-?[0-9]+)")
_TABLE = re.compile(r'\s*\{\s*"offsetTable"\s*:\s*\{(.*)\}\s*\}\s*', re.DOTALL)

_BEGINNING = GroupStart(0, 0)
_FIELDS = ("logOffset", "timeMs", "endOffset", "metMs")

_Starts = dict[str, dict[str, tuple[GroupStart, int]]]
"""Topic → broker → where the consumer starts, and when it met the broker, in epoch milliseconds."""

_log = logging.getLogger(__name__)


class LocalOffsets:
    """The starts and offsets of one consumer. The files are read and written in other threads."""

    def __init__(
        self, client_id: str, group: str, transport: ClientTransport, folder: Path | None = None
    ) -> None:
        """`folder` contains the files of all clients; the default is RocketMQ's."""
        folder = folder or Path.home() / ".rocketmq_offsets"
        self._file = folder / client_id / group / "offsets.json"
        self._starts_file = self._file.with_name("start.json")
        self._group, self._transport = group, transport
        self._lock, self._starts = threading.Lock(), _Starts()

    async def first_contact(
        self, broker: str, wanted: Mapping[str, GroupStart], brokers: Collection[str]
    ) -> Mapping[str, GroupStart]:
        """Store the starts of topics that have none at this broker; brokers store nothing."""
        if all(broker in self._starts.get(topic, ()) for topic in wanted):
            return {}
        end = (await self._transport.group_starts(broker, self._group)).end
        await asyncio.to_thread(self._add_starts, broker, wanted, end)
        return {}

    def _add_starts(self, broker: str, wanted: Mapping[str, GroupStart], end: GroupStart) -> None:
        with self._lock:
            starts, offsets, now = self._read_starts(), self._read(), system_clock()
            for topic, start in wanted.items():
                known = starts.setdefault(topic, {})
                if broker in known:
                    continue
                others = [(other, max(now - met, 0)) for other, met in known.values()]
                if any((queue.topic, queue.broker) == (topic, broker) for queue in offsets):
                    start = _BEGINNING  # An earlier release has consumed the topic.
                elif start == END and others:
                    start = later(end, others)
                known[broker] = start.stored_at(end), now
            if starts != self._starts:
                data = json.dumps({"version": 1, "starts": _jsoned(starts)}).encode()
                replace_file(self._starts_file, data, self._file.parent / "scratch")
            self._starts = starts

    async def start(self, queue: MessageQueue) -> GroupPosition:
        offset = (await asyncio.to_thread(self._read)).get(queue)
        if offset is not None:
            return GroupPosition(offset)
        start, _ = self._starts.get(queue.topic, {}).get(queue.broker, (_BEGINNING, 0))
        return await self._transport.start_offset(self._group, queue, start)

    async def save(
        self, positions: Mapping[MessageQueue, GroupPosition]
    ) -> Mapping[MessageQueue, Committed]:
        """Store offsets durably; nothing is known of the ranges of the queues."""
        await asyncio.to_thread(
            self._merge, {queue: positions[queue].offset for queue in positions}
        )
        return {}

    def _merge(self, offsets: Mapping[MessageQueue, int]) -> None:
        with self._lock:
            merged = {**self._read(), **offsets}
            text = ",".join(f"{_key(queue)}:{merged[queue]}" for queue in sorted(merged))
            data = f'{{"offsetTable":{{{text}}}}}'.encode()
            replace_file(self._file, data, self._file.parent / "scratch", backup=True)

    def _read_starts(self) -> _Starts:
        """Return all starts. Raises StoreDamagedError."""
        data = read_or_none(self._starts_file)
        if data is None:
            return {}
        try:
            content = json.loads(data)
            if content["version"] != 1:
                raise ValueError(f"it has version {content['version']}")
            return {
                topic: {name: _start(fields) for name, fields in by_broker.items()}
                for topic, by_broker in content["starts"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamagedError(
                f"{self._starts_file} cannot be parsed: {error}.",
                remedy="Restore it. If it is deleted, the group starts again by `consume_from` in"
                " queues of which it has consumed nothing.",
            ) from None

    def _read(self) -> dict[MessageQueue, int]:
        """Return all offsets; of a corrupt file, those of its previous content."""
        for file in (self._file, self._file.with_name(self._file.name + ".bak")):
            data = read_or_none(file)
            if data is None:
                continue
            try:
                return _parse(data.decode())
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("%s cannot be parsed: %s", file, error)
        return {}


def offsets_of(
    group: str, model: MessageModel, transport: ClientTransport, member: Member, name: str
) -> OffsetStore:
    """Return where a consumer stores its offsets: at the brokers, or in a file if it broadcasts.

    name: Names the file's folder; DEFAULT in RocketMQ, so that the consumer finds its offsets after
        a restart.
    """
    if model is MessageModel.CLUSTERING:
        return BrokerOffsets(transport, group, member)
    address = member.client_id.partition("@")[0]
    return LocalOffsets(f"{address}@{name}", group, transport)


def _jsoned(starts: _Starts) -> dict[str, dict[str, dict[str, int]]]:
    def fields(start: GroupStart, met_ms: int) -> dict[str, int]:
        given = dict(zip(_FIELDS, (*astuple(start), met_ms), strict=True))
        return {name: value for name, value in given.items() if value is not None}

    return {
        topic: {name: fields(*start) for name, start in by_broker.items()}
        for topic, by_broker in starts.items()
    }


def _start(given: Any) -> tuple[GroupStart, int]:
    start = GroupStart(*(given.get(name) for name in _FIELDS[:-1]))
    if start == END or not all(isinstance(value, int) for value in given.values()):
        raise ValueError(f"{given} is not a start")
    return start, given["metMs"]


def _key(queue: MessageQueue) -> str:
    key = {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}
    return json.dumps(key, separators=(",", ":"))


def _parse(text: str) -> dict[MessageQueue, int]:
    """Return the offsets in a file. Raises ValueError, KeyError, TypeError."""
    table = _TABLE.fullmatch(text)
    if table is None:
        raise ValueError("it is not an offset table")
    if _ENTRY.sub("", table[1]).strip(", \t\r\n"):
        raise ValueError("an entry is not a queue with an offset")
    offsets = {}
    for key, offset in _ENTRY.findall(table[1]):
        queue = json.loads(key)
        place = MessageQueue(str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"]))
        offsets[place] = int(offset)
    return offsets
