"""Topics and their queue counts: RocketMQ's `config/topics.json`, and what it has no room for.

`pyrocket/topics.json` keeps an id for each topic, so that one that was deleted and made again is
told from the old one, and where the queues of deleted topics ended: a new topic of that name goes
on from there, otherwise the queues could not be rebuilt from the log. Both files are re-read when
they change; whoever changes them holds the mutex.
"""

import json
import re
import uuid
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from pyrocket.clock import Clock
from pyrocket.config import MAX_QUEUES
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError, StoreDamagedError, TopicNameError, TopicNotFoundError
from pyrocket.formats import fastjson
from pyrocket.formats.record import MAX_TOPIC_BYTES

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
"""On disk: never renumber."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_FORBIDDEN = frozenset(
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
    ]
)


@dataclass(frozen=True)
class TopicConfig:
    """One topic. Readers use `read_queues`, senders `write_queues`; `topic_id` may be empty."""

    name: str
    read_queues: int
    write_queues: int
    perm: int = PERM_READ | PERM_WRITE
    topic_id: str = ""

    @property
    def readable(self) -> bool:
        """Whether messages may be read."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether messages may be sent."""
        return bool(self.perm & PERM_WRITE)


def check_topic_name(name: str) -> None:
    """Raise TopicNameError unless users may create and write a topic of this name."""
    if not name or len(name) > MAX_TOPIC_BYTES or not _NAME.fullmatch(name):
        raise TopicNameError(
            f"{name!r} is no legal topic name.",
            remedy=f"Use 1 to {MAX_TOPIC_BYTES} of the characters a-z A-Z 0-9 _ - % |.",
        )
    if name in _FORBIDDEN or name.startswith("rmq_sys_"):
        raise TopicNameError(
            f"{name!r} is a system topic of RocketMQ.", remedy="Choose another name."
        )


class Topics:
    """The topic table of one store."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout, self._clock = layout, clock
        self._cache: tuple[object, dict[str, TopicConfig]] | None = None

    def all(self) -> dict[str, TopicConfig]:
        """Return every topic by name."""
        stamp = _stamp(self._layout.config("topics")), _stamp(self._layout.topic_ids)
        if self._cache is None or self._cache[0] != stamp:
            self._cache = stamp, self._parse()
        return self._cache[1]

    def get(self, name: str) -> TopicConfig:
        """Return one topic, or raise TopicNotFoundError naming the nearest."""
        known = self.all()
        if name in known:
            return known[name]
        near = get_close_matches(name, known, 1)
        raise TopicNotFoundError(
            f"there is no topic {name!r} in {self._layout.root}.",
            remedy=f"Did you mean {near[0]!r}?" if near else f"Topics: {sorted(known) or 'none'}.",
        )

    def ended_at(self, name: str, queue_id: int) -> int:
        """Return where a queue of a deleted topic of this name ended; 0 if there was none."""
        ends = self._own().get("ended", {}).get(name, {})
        return int(ends.get(str(queue_id), 0))

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Add or change a topic, durably; a new one gets its id."""
        for queues in (topic.read_queues, topic.write_queues):
            if not 1 <= queues <= MAX_QUEUES:
                raise InvalidInputError(
                    f"topic {topic.name!r} cannot have {queues} queues.",
                    remedy=f"Use 1 to {MAX_QUEUES}.",
                    code="QUEUE_COUNT",
                )
        own = self._own()
        ids = own.setdefault("ids", {})
        ids.setdefault(topic.name, uuid.uuid4().hex)
        self._save_own(own)
        table = self._table()
        entry = table["topicConfigTable"].get(topic.name, {})
        table["topicConfigTable"][topic.name] = {**entry, **_to_json(topic)}
        self._save_table(table)
        return replace(topic, topic_id=ids[topic.name])

    def note_ends(self, name: str, queue_ends: dict[int, int]) -> None:
        """Remember where the queues of a topic end, durably, before they are removed."""
        own = self._own()
        ended = own.setdefault("ended", {}).setdefault(name, {})
        ended.update({str(queue_id): end for queue_id, end in queue_ends.items()})
        self._save_own(own)

    def remove(self, name: str) -> None:
        """Forget a topic, durably."""
        own = self._own()
        own.get("ids", {}).pop(name, None)
        self._save_own(own)
        table = self._table()
        table["topicConfigTable"].pop(name, None)
        self._save_table(table)

    def _parse(self) -> dict[str, TopicConfig]:
        ids = self._own().get("ids", {})
        try:
            return {
                name: _from_json(name, entry, ids.get(name, ""))
                for name, entry in self._table()["topicConfigTable"].items()
            }
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StoreDamagedError(
                f"{self._layout.config('topics')} makes no sense: {error!r}.",
                remedy="Restore it from a backup, or correct it by hand.",
            ) from error

    def _table(self) -> dict[str, Any]:
        """Return topics.json, or its backup where it is missing or broken, as RocketMQ does."""
        path = self._layout.config("topics")
        backup = path.with_name(path.name + ".bak")
        for candidate in (path, backup):
            text = read_or_none(candidate)
            try:
                table = fastjson.loads(text.decode()) if text else None
            except ValueError:
                continue
            if table:
                table.setdefault("topicConfigTable", {})
                return dict(table)
        if path.exists() and path.stat().st_size:
            raise StoreDamagedError(
                f"{path} is not JSON, and neither is its backup.",
                remedy="Restore it from a backup, or correct it by hand.",
            )
        return {"dataVersion": {"counter": 0, "timestamp": 0}, "topicConfigTable": {}}

    def _save_table(self, table: dict[str, Any]) -> None:
        version = table.setdefault("dataVersion", {"counter": 0, "timestamp": 0})
        version["counter"] = int(version.get("counter", 0)) + 1
        version["timestamp"] = self._clock()
        text = fastjson.dumps({name: table[name] for name in sorted(table)})
        path = self._layout.config("topics")
        replace_file(path, text.encode(), self._layout.scratch, backup=True)

    def _own(self) -> dict[str, Any]:
        text = read_or_none(self._layout.topic_ids)
        return json.loads(text) if text else {}

    def _save_own(self, own: dict[str, Any]) -> None:
        content = json.dumps(own, sort_keys=True, indent=1).encode()
        replace_file(self._layout.topic_ids, content, self._layout.scratch)


def _stamp(path: Any) -> object:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _from_json(name: str, entry: dict[str, Any], topic_id: str) -> TopicConfig:
    queues = int(entry["readQueueNums"]), int(entry["writeQueueNums"])
    return TopicConfig(name, *queues, int(entry["perm"]), topic_id)


def _to_json(topic: TopicConfig) -> dict[str, Any]:
    return {
        "order": False,
        "perm": topic.perm,
        "readQueueNums": topic.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic.name,
        "topicSysFlag": 0,
        "writeQueueNums": topic.write_queues,
    }
