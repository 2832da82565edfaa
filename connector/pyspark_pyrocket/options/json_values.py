"""Options whose value is JSON: parsing it, and values by topic, broker and queue."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pyrocket import MessageQueue
from pyrocket.errors import OptionError


def parse_json(option: str, text: str, example: str) -> object:
    """Return the value of `text`. Raises OptionError, also if an object repeats a key.

    example: a valid value of this option, shown in the error about text that is not JSON.
    """

    def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise OptionError(f"Option {option!r} names {', '.join(twice)} twice: {text}")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"Option {option!r} is not JSON: {error}: {text!r}.",
            remedy=f"Write for example {example}.",
        ) from error


_QUEUE = re.compile(r"0|[1-9][0-9]{0,8}")

_Name = TypeVar("_Name", str, int)
_Value = TypeVar("_Value")

ByQueue = Mapping[str, Mapping[str, Mapping[int, _Value]]]
"""Topic → broker → queue → value; the broker is an empty string if the user omitted it."""

Read = Callable[[str, object], _Value]
"""Parses one value; the first argument is its place in the JSON, for errors."""


def parse_by_queue(option: str, text: str, read: Read[_Value], example: str) -> ByQueue[_Value]:
    """Return the values of `text`, a JSON object. Raises OptionError, which shows the example."""
    return {
        topic: _brokers(f"Option {option!r}, topic {topic!r}", value, read)
        for topic, value in parse_topics(option, text, example).items()
    }


def parse_topics(option: str, text: str, example: str) -> dict[str, object]:
    """Return topic → its value in a JSON object. Raises OptionError unless a topic is named."""
    topics = parse_json(option, text, example)
    if not isinstance(topics, dict) or not topics:
        raise OptionError(f"Option {option!r} names no topic: {text}", remedy='Write {"topic":…}.')
    return topics


def exactly(
    option: str, given: ByQueue[_Value], queues: Iterable[MessageQueue]
) -> dict[MessageQueue, _Value]:
    """Return the value of each queue. Raises OptionError unless exactly these are named."""
    real: dict[str, dict[str, dict[int, MessageQueue]]] = {}
    for queue in queues:
        real.setdefault(queue.topic, {}).setdefault(queue.broker, {})[queue.queue_id] = queue
    _check_names(f"Option {option!r}", "topics", set(given), set(real))
    chosen: dict[MessageQueue, _Value] = {}
    for topic, brokers in real.items():
        named, where = given[topic], f"Option {option!r}, topic {topic!r}"
        if "" in named:  # Without a broker level: the same values for every broker.
            named = dict.fromkeys(brokers, named[""])
        _check_names(where, "brokers", set(named), set(brokers))
        for broker, wanted in brokers.items():
            _check_names(where, "queues", set(named[broker]), set(wanted))
            chosen |= {queue: named[broker][queue_id] for queue_id, queue in wanted.items()}
    return chosen


def queue_number(where: str, text: str) -> int:
    """Return the queue id of a JSON key, which is always text. Raises OptionError."""
    if _QUEUE.fullmatch(text) is None:
        raise OptionError(f"{where}: {text!r} is not a queue id.", remedy='Write "0", "1", ...')
    return int(text)


def _brokers(where: str, value: object, read: Read[_Value]) -> dict[str, dict[int, _Value]]:
    if not isinstance(value, dict) or not value:
        raise OptionError(f"{where}: {value!r} does not name queues.", remedy='Write {"0":…}.')
    if all(isinstance(inner, dict) for inner in value.values()):
        return {broker: _queues(where, inner, read) for broker, inner in value.items()}
    return {"": _queues(where, value, read)}


def _queues(where: str, value: dict[str, object], read: Read[_Value]) -> dict[int, _Value]:
    return {
        queue_number(where, queue): read(f"{where}, queue {queue}", value[queue]) for queue in value
    }


def _check_names(where: str, what: str, given: set[_Name], real: set[_Name]) -> None:
    missing, extra = real - given, given - real
    if not missing and not extra:
        return
    parts = [f"names {_list(what, extra)}, which this query does not read"] if extra else []
    parts += [f"does not name {_list(what, missing)}"] if missing else []
    raise OptionError(
        f"{where} {', and '.join(parts)}.", remedy=f"Name exactly {_list(what, real)}."
    )


def _list(what: str, names: set[_Name]) -> str:
    """Return `the queue 3` or `the queues 0, 1`; `what` is the plural, here `queues`."""
    noun = what if len(names) != 1 else what.removesuffix("s")
    return f"the {noun} {', '.join(map(str, sorted(names)))}"
