"""The offsets of broadcasting consumers, in a file on their own machine.

The file has RocketMQ's name and format: `~/.rocketmq_offsets/<client id>/<group>/offsets.json`. Its
previous content is in `offsets.json.bak`. The keys are objects, which standard JSON does not allow:

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}}

Source: `LocalFileOffsetStore`.
"""

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.offsets import BrokerOffsets, OffsetStore
from pyrocket.client.instance import Instance
from pyrocket.consuming import Committed, MessageModel
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.message import MessageQueue

_ENTRY = re.compile(r"(\{[^{}]*\})\s*:\s*(-?[0-9]+)")
_TABLE = re.compile(r'\s*\{\s*"offsetTable"\s*:\s*\{(.*)\}\s*\}\s*', re.DOTALL)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class LocalOffsets:
    """The offsets of one group of a client. The file is read and written in other threads."""

    def __init__(self, client_id: str, group: str, folder: Path | None = None) -> None:
        """`folder` contains the files of all clients; the default is RocketMQ's."""
        folder = folder or Path.home() / ".rocketmq_offsets"
        self._file = folder / client_id / group / "offsets.json"
        self._lock = threading.Lock()

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored next offset of a queue; None if there is none."""
        return (await _in_thread(self._read)).get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, Committed]:
        """Store offsets durably; nothing is known of the ranges of the queues."""
        await _in_thread(lambda: self._merge(offsets))
        return {}

    def _merge(self, offsets: Mapping[MessageQueue, int]) -> None:
        with self._lock:
            merged = {**self._read(), **offsets}
            text = ",".join(f"{_key(queue)}:{merged[queue]}" for queue in sorted(merged))
            data = f'{{"offsetTable":{{{text}}}}}'.encode()
            replace_file(self._file, data, self._file.parent / "scratch", backup=True)

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


def offsets_of(config: ConsumerConfig, instance: Instance, name: str) -> OffsetStore:
    """Return where a consumer stores its offsets: at the brokers, or in a file if it broadcasts.

    name: The name in the client id. Without one, the file's folder is named DEFAULT, as in
    RocketMQ, so that the consumer finds its offsets after a restart.
    """
    if config.message_model is MessageModel.CLUSTERING:
        return BrokerOffsets(instance.transport, config.group, instance.member)
    address = instance.member.client_id.partition("@")[0]
    return LocalOffsets(f"{address}@{name or 'DEFAULT'}", config.group)


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
    found = {}
    for key, offset in _ENTRY.findall(table[1]):
        queue = json.loads(key)
        place = MessageQueue(str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"]))
        found[place] = int(offset)
    return found


async def _in_thread(work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
