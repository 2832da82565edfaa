"""Topics and their queue counts: RocketMQ's `config/topics.json`, and `pyrocket/topics.json`.

The second file has an id for each topic, which distinguishes a topic from a deleted topic of the
same name. It also has the queue ends of deleted topics: a new topic of the same name continues at
these ends, because otherwise its queues could not be rebuilt from the log. Both files are reloaded
when they change; a process that changes them holds the write lock. Other settings of RocketMQ
(filter type, attributes) are preserved.

The type of a topic's messages is RocketMQ 5's attribute `message.type`; a topic without it accepts
messages of every type. Source: `TopicAttributes`, `TopicMessageType`.

A RocketMQ 5 broker cannot start on a store in use. But before the broker fails, it overwrites the
table with the table that it loaded, without the topics created in the meantime. Therefore
`pyrocket/topics.json` also has the settings of the topics that pyrocket created. These settings
replace missing entries of the table as long as no broker has used the store. A broker that uses the
store changes `lock`; after that, a missing topic is a deleted topic.
"""

import re
import uuid
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pyrocket.base.arguments import check_text, check_type, is_whole
from pyrocket.base.cached import Cached
from pyrocket.base.clock import Clock
from pyrocket.base.config import MAX_QUEUES
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import lock_identity
from pyrocket.errors import InvalidInputError, TopicNameError, TopicNotFoundError
from pyrocket.formats import fastjson
from pyrocket.formats.record import MAX_TOPIC_BYTES
from pyrocket.formats.system_topics import (
    CLOSED_TO_SENDERS,
    DLQ_PREFIX,
    MADE_BY_BROKERS,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
)
from pyrocket.metadata.json_table import Content, JsonTable, OwnFile
from pyrocket.values.admin import PERM_READ, PERM_WRITE, TopicConfig

MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_ATTRIBUTES, _TYPE = "attributes", "message.type"


class TopicTypes:
    """The types of the topics of one store. The file is read again when it changes."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._table = JsonTable(layout, "topics", _types_of, required=_TABLE)
        self._clock = clock
        self._known = Cached(self._table.stamp, self._table.read)

    def of(self, topic: str) -> str:
        """Return the type of a topic's messages; empty if the topic accepts all types."""
        return self._known().get(topic, "")

    def set(self, topic: str, message_type: str) -> None:
        """Set the type of an existing topic, durably. Requires the write lock.

        Raises InvalidInputError (MESSAGE_TYPE).
        """
        if message_type not in MESSAGE_TYPES:
            raise InvalidInputError(
                f"{message_type!r} is not a type of messages.",
                remedy=f"Use one of {', '.join(MESSAGE_TYPES)}.",
                code="MESSAGE_TYPE",
            )

        def edit(content: Content) -> bool:
            attributes = content[_TABLE][topic].setdefault(_ATTRIBUTES, {})
            changed = attributes.get(_TYPE) != message_type
            attributes[_TYPE] = message_type
            return changed

        self._table.change(edit, changed_at=self._clock())


def _types_of(content: Content) -> dict[str, str]:
    return {
        name: str(attributes[_TYPE])
        for name, entry in content.get(_TABLE, {}).items()
        if _TYPE in (attributes := entry.get(_ATTRIBUTES) or {})
    }


_MAX_PERM = 2**31 - 1
"""Brokers may use other permission bits."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_NAME = re.compile(r"[%|+a-zA-Z0-9_-]+")
"""RocketMQ 5 has retry topics such as `%RETRY%group+topic`."""

_TABLE = "topicConfigTable"
_DEFAULTS = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
_REMEDY = (
    "Restore it from a copy. Or remove it: then running queries treat the topics as new ones, and a"
    " topic created with the name of a deleted one loses its messages."
)
_MAX_NAMED = 10
_MAX_QUEUES = 1 << 16
"""A larger queue count is treated as damage, because checking all queues would take too long."""

Entry = tuple[int, int, int, bool]
"""A topic's entry in the table: read queues, write queues, permission, order flag."""


def check_topic_name(name: str) -> None:
    """Raise TopicNameError unless users may create a topic of this name and send to it."""
    _check_characters(name, _NAME)
    check_not_system(name)


def _check_characters(name: str, legal: re.Pattern[str]) -> None:
    if not (isinstance(name, str) and legal.fullmatch(name) and len(name) <= MAX_TOPIC_BYTES):
        raise TopicNameError(
            f"{name!r} is not a legal topic name.",
            remedy=f"Use 1 to {MAX_TOPIC_BYTES} of the characters a-z A-Z 0-9 _ - % |.",
        )


def check_not_system(name: str) -> None:
    """Raise TopicNameError if the topic is a system topic of RocketMQ."""
    if not isinstance(name, str):
        raise TopicNameError(
            f"{name!r} is not a legal topic name.", remedy="Use the name of a topic, a str."
        )
    if name in CLOSED_TO_SENDERS or name.startswith(SYSTEM_PREFIX):
        raise TopicNameError(
            f"{name!r} is a system topic of RocketMQ.", remedy="Choose another name."
        )


def is_system_topic(name: str, broker_name: str, names: Container[str] = ()) -> bool:
    """Whether RocketMQ uses or creates the topic itself; "all topics" excludes such topics.

    `names` are the names of all topics of the store: the name of a reply topic contains the name of
    the cluster.
    """
    return (
        name in CLOSED_TO_SENDERS | MADE_BY_BROKERS | {broker_name}
        or name.lower().startswith(SYSTEM_PREFIX)
        or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or name.endswith(REPLY_SUFFIX)
        or f"{name}{REPLY_SUFFIX}" in names
    )


def similar_to(name: str, names: Iterable[str]) -> list[str]:
    """Return the names of users' topics that are similar to `name`, the most similar first."""
    system = SYSTEM_PREFIX, RETRY_PREFIX, DLQ_PREFIX
    return get_close_matches(name, [topic for topic in names if not topic.startswith(system)])


class Topics:
    """The topic table of one store."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout, self._clock = layout, clock
        self.table = JsonTable(layout, "topics", _parse, required=_TABLE)
        self._own_file = OwnFile(layout.topic_ids, layout.scratch, _own_of, _REMEDY)
        self._all = Cached(lambda: (self.table.stamp(), self._own_file.stamp()), self._read)
        self._own_cache: tuple[object, _Own] | None = None

    def all(self) -> dict[str, TopicConfig]:
        return self._all()

    def _read(self) -> dict[str, TopicConfig]:
        own, table = self._own(), self.table.read()
        entries = {**self._lost(own, table), **table}
        return {
            name: TopicConfig(name, *entries[name], own.ids.get(name, ""))
            for name in sorted(entries)
        }

    def get(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError with the most similar name."""
        check_text(topic=name)
        known = self.all()
        if name in known:
            return known[name]
        near = get_close_matches(name, known, 1)
        raise TopicNotFoundError(
            f"there is no topic {name!r} in {self._layout.root}.",
            remedy=f"Did you mean {near[0]!r}?" if near else _some(known),
        )

    def remembered(self) -> dict[str, TopicConfig]:
        """Return the topics in pyrocket's file, even deleted ones. Raises StoreDamagedError."""
        return {name: TopicConfig(name, *entry) for name, entry in self._own().known.items()}

    def ended_at(self, name: str, queue_id: int) -> int:
        """Return the end of a queue that was deleted or cleaned completely; otherwise 0."""
        return self._own().ended.get(name, {}).get(queue_id, 0)

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Add or change a topic, durably. A new topic gets an id."""
        check_settings(topic)
        self.restore([topic])
        return self.get(topic.name)

    def ensure(self, queues: Mapping[str, int]) -> None:
        """Create or enlarge topics, durably, so that each has at least the given number of queues.

        Raises TopicNameError, and InvalidInputError for an invalid number.
        """
        lacking = lacking_topics(queues, self.all())
        for topic in lacking:
            _check_characters(topic.name, _SYSTEM_NAME)
            check_settings(topic)
        if lacking:
            self.restore(lacking)

    def restore(self, topics: Sequence[TopicConfig]) -> None:
        """Add or change topics, durably and all at once. New topics get ids.

        A table that cannot be parsed is replaced by its backup with these topics added.
        """
        own, wanted = self._own().copy(), {topic.name: entry_of(topic) for topic in topics}

        def put_entries(content: Content) -> bool:
            table = content.setdefault(_TABLE, {})
            lost = self._lost(own, table)
            self._remember(own, wanted, content)
            for name, entry in {**lost, **wanted}.items():
                fields = {**_DEFAULTS, **table.get(name, {}), **_to_json(name, entry)}
                table[name] = dict(sorted(fields.items()))
            return True

        self.table.change(put_entries, changed_at=self._clock())

    def _remember(self, own: "_Own", wanted: Mapping[str, Entry], content: Content) -> None:
        """Save ids and entries of topics in pyrocket's file, durably, before RocketMQ's table."""
        for name in wanted:
            own.ids.setdefault(name, uuid.uuid4().hex)
        lock = list(lock_identity(self._layout.lock) or ())
        if own.lock != lock:  # A broker has used the store, so the broker's table is valid.
            known = _parse(content)
            own.known, own.lock = {name: known[name] for name in own.ids if name in known}, lock
        own.known.update(wanted)
        self._save_own(own)

    def save_ends(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Save the ends of queues by topic, durably, before their last entries are deleted."""
        known = self._own()
        own = known.copy()
        for name, queue_ends in ends.items():
            own.ended[name] = {**own.ended.get(name, {}), **queue_ends}
        if own.ended != known.ended:
            self._save_own(own)

    def remove(self, name: str) -> None:
        """Delete a topic, durably."""
        own = self._own().copy()
        own.ids.pop(name, None)
        own.known.pop(name, None)
        self._save_own(own)
        self.table.change(
            lambda content: content.get(_TABLE, {}).pop(name, None) is not None,
            changed_at=self._clock(),
        )

    def _lost(self, own: "_Own", table: Container[str]) -> dict[str, Entry]:
        """Return pyrocket's topics that are missing in the table but were not deleted."""
        if own.lock != list(lock_identity(self._layout.lock) or ()):
            return {}
        return {name: entry for name, entry in own.known.items() if name not in table}

    def _own(self) -> "_Own":
        """Return the content of `pyrocket/topics.json`. It is cached: change only copies."""
        stamp, cached = self._own_file.stamp(), self._own_cache
        if cached is not None and cached[0] == stamp:
            return cached[1]
        own = self._own_file.read() or _own_of({})
        self._own_cache = stamp, own
        return own

    def _save_own(self, own: "_Own") -> None:
        content = {
            **own.rest,
            "ids": own.ids,
            "ended": {name: fastjson.text_keys(ends) for name, ends in own.ended.items()},
            "known": {name: _to_json(name, entry) for name, entry in own.known.items()},
            "lock": own.lock,
        }
        self._own_file.save(content)
        self._own_cache = self._own_file.stamp(), own


@dataclass
class _Own:
    """The content of `pyrocket/topics.json`.

    ids: by topic. ended: the ends of deleted queues, by topic and queue id. known: the entries of
    topics that pyrocket created, valid while `lock` has the same identity. rest: unknown fields,
    preserved.
    """

    ids: dict[str, str]
    ended: dict[str, dict[int, int]]
    known: dict[str, Entry]
    lock: list[int]
    rest: Content

    def copy(self) -> "_Own":
        """Return a copy that may be changed. The copy shares the inner dictionaries of `ended`."""
        return _Own(dict(self.ids), dict(self.ended), dict(self.known), self.lock, self.rest)


def _own_of(content: Content) -> _Own:
    """Return the parsed content of the file. Raises one of `fastjson.PARSE_ERRORS`."""
    if content and "ids" not in content:
        raise KeyError("ids")
    rest = {key: content[key] for key in content if key not in ("ids", "ended", "known", "lock")}
    ended, known = content.get("ended", {}).items(), content.get("known", {}).items()
    return _Own(
        {name: str(topic_id) for name, topic_id in content.get("ids", {}).items()},
        {name: fastjson.int_keys(ends) for name, ends in ended},
        {name: _entry_of(name, entry) for name, entry in known},
        list(map(int, content.get("lock", []))),
        rest,
    )


def check_settings(topic: TopicConfig) -> None:
    """Raise InvalidInputError (QUEUE_COUNT, TOPIC_PERMISSION) for invalid settings."""
    for queues in (topic.read_queues, topic.write_queues):
        if not is_whole(queues, 1, MAX_QUEUES):
            raise InvalidInputError(
                f"topic {topic.name!r} cannot have {queues!r} queues.",
                remedy=f"Use 1 to {MAX_QUEUES}.",
                code="QUEUE_COUNT",
            )
    if not is_whole(topic.perm, 0, _MAX_PERM):
        raise InvalidInputError(
            f"topic {topic.name!r} cannot have the permission {topic.perm!r}.",
            remedy=f"Use {PERM_READ} for reading, {PERM_WRITE} for writing, their sum, or 0.",
            code="TOPIC_PERMISSION",
        )
    check_type(bool, "Use True or False.", ordered=topic.ordered)


def _some(names: Collection[str]) -> str:
    """Return a string that lists the first topics by name."""
    first = sorted(names)[:_MAX_NAMED]
    more = f" and {len(names) - len(first)} more" if len(names) > len(first) else ""
    return f"Topics: {', '.join(map(repr, first)) or 'none'}{more}."


def lacking_topics(
    queues: Mapping[str, int], known: Mapping[str, TopicConfig]
) -> list[TopicConfig]:
    """Return new settings for the topics that are missing, or have fewer queues than `queues`."""
    return [
        replace(known.get(name, TopicConfig(name, 0, 0)), read_queues=count, write_queues=count)
        for name, count in queues.items()
        if name not in known or known[name].write_queues < count
    ]


def _parse(content: Content) -> dict[str, Entry]:
    return {name: _entry_of(name, entry) for name, entry in content.get(_TABLE, {}).items()}


def _entry_of(name: str, entry: Content) -> Entry:
    read, write = int(entry["readQueueNums"]), int(entry["writeQueueNums"])
    # Brokers may name topics after their hosts, with dots; but the name must be valid for a folder.
    if "/" in name or "\0" in name or name in (".", "..") or max(read, write) > _MAX_QUEUES:
        raise ValueError(f"no topic can be {name!r} with {max(read, write)} queues")
    return read, write, int(entry["perm"]), bool(entry.get("order", False))


def entry_of(topic: TopicConfig) -> Entry:
    """Return the entry of a topic in the table."""
    return topic.read_queues, topic.write_queues, topic.perm, topic.ordered


def _to_json(name: str, entry: Entry) -> Content:
    read, write, perm, ordered = entry
    return {
        "order": ordered,
        "perm": perm,
        "readQueueNums": read,
        "topicName": name,
        "writeQueueNums": write,
    }
