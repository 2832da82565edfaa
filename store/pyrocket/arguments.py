"""Whether what callers give is of the kind that it has to be: by name, before anything is done."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyrocket.errors import InvalidInputError, MessageError
from pyrocket.limits import is_number
from pyrocket.message import Message

_RANGE = ("queue_id", "start", "end")
_BY_TOPIC = "Use {topic: {queue id: next offset}}."


def check_numbers(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_NUMBER) naming the first that is no whole number."""
    for name, value in named.items():
        if not is_number(value):
            raise InvalidInputError(
                f"{name} is {value!r}, of type {type(value).__name__}.",
                remedy="Use a whole number (int).",
                code="NOT_A_NUMBER",
            )


def check_text(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_TEXT) naming the first that is no str, or no Unicode."""
    for name, value in named.items():
        if not isinstance(value, str):
            raise InvalidInputError(
                f"{name} is {value!r}, of type {type(value).__name__}.",
                remedy="Use a text (str).",
                code="NOT_A_TEXT",
            )
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{name} is {value!r}, which is no Unicode: {error.reason}.",
                remedy="Use a text that UTF-8 can encode.",
                code="NOT_A_TEXT",
            ) from error


def check_texts(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_TEXT) naming the first that is no collection of str."""
    for name, value in named.items():
        if isinstance(value, str | bytes) or not isinstance(value, Collection):
            raise InvalidInputError(
                f"{name} is {value!r}, of type {type(value).__name__}.",
                remedy='Use a list of texts (str), such as ["t"].',
                code="NOT_A_TEXT",
            )
        for each in value:
            check_text(**{f"one of {name}": each})


def check_type(wanted: type | tuple[type, ...], remedy: str, /, **named: Any) -> None:
    """Raise InvalidInputError (WRONG_TYPE) naming the first that is of another type."""
    for name, value in named.items():
        if not isinstance(value, wanted):
            raise InvalidInputError(
                f"{name} is {value!r}, of type {type(value).__name__}.",
                remedy=remedy,
                code="WRONG_TYPE",
            )


def check_place(topic: Any, queue_id: Any, **offsets: Any) -> None:
    """Raise InvalidInputError unless these can be a queue and offsets in it."""
    check_text(topic=topic)
    check_numbers(queue_id=queue_id, **offsets)


def check_all_numbers(**named: Any) -> None:
    """Raise InvalidInputError naming the first that is no sequence of whole numbers."""
    check_type(Sequence, "Use a list of whole numbers.", **named)
    for name, numbers in named.items():
        for each in numbers:
            check_numbers(**{f"one of {name}": each})


def check_ranges(ranges: Any) -> None:
    """Raise InvalidInputError unless these are ranges (queue id, start, end)."""
    check_type(Sequence, "Use a list of (queue id, start, end).", ranges=ranges)
    for one in ranges:
        if not isinstance(one, tuple) or len(one) != len(_RANGE):
            check_type((), "Use (queue id, start, end).", **{"one of the ranges": one})
        check_numbers(**dict(zip(_RANGE, one, strict=True)))


def check_offsets(offsets: Any) -> None:
    """Raise InvalidInputError unless these are offsets by topic and queue id."""
    check_type(Mapping, _BY_TOPIC, offsets=offsets)
    for topic, queues in offsets.items():
        check_type(Mapping, _BY_TOPIC, **{f"the offsets of {topic!r}": queues})
        for queue_id, offset in queues.items():
            check_place(topic, queue_id, offset=offset)


def path_of(given: Any, name: str, code: str) -> Path:
    """Return an absolute path. Raises InvalidInputError with `code` for what can be none."""
    try:
        path = os.fspath(given)
        if isinstance(path, str) and path and b"\0" not in os.fsencode(path):
            return Path(path).absolute()
    except (TypeError, UnicodeEncodeError):
        pass
    raise InvalidInputError(
        f"{name} is {given!r}.",
        remedy="Name its directory, as a str or a Path; '.' is the current one.",
        code=code,
    )


def check_message_kinds(message: Message) -> None:
    """Raise MessageError naming the first field that is not of its kind; costs next to nothing."""
    if not isinstance(message, Message):
        _refuse("the message", message, "Append a pyrocket.Message(topic=…, body=…).")
    for name, text in (("tags", message.tags), ("sharding_key", message.sharding_key)):
        if text is not None and not isinstance(text, str):
            _refuse(name, text, "Use a text (str), or None.")
    if message.queue_id is not None and not is_number(message.queue_id):
        _refuse("queue_id", message.queue_id, "Use a whole number (int), or None.")
    if not is_number(message.flag):
        _refuse("flag", message.flag, "Use a whole number (int); 0 is the default.")
    if message.keys != () and not isinstance(message.keys, str):
        _check_keys(message.keys)
    if message.properties != {}:
        _check_properties(message.properties)


def _check_keys(keys: Any) -> None:
    # To ask an abstract class takes a microsecond.
    if type(keys) is not list and (isinstance(keys, bytes) or not isinstance(keys, Collection)):
        _refuse("keys", keys, "Use a list of texts (str); () is none.")
    for key in keys:
        if not isinstance(key, str):
            _refuse("one of the keys", key, "Use texts (str).")


def _check_properties(properties: Any) -> None:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        _refuse("properties", properties, "Use a dict of texts (str); {} is none.")
    for name, value in properties.items():
        if not isinstance(name, str):
            _refuse("the name of a property", name, "Use a text (str).")
        if not isinstance(value, str):
            _refuse(f"property {name!r}", value, f"Use a text (str), such as {str(value)!r}.")


def _refuse(name: str, value: Any, remedy: str) -> NoReturn:
    raise MessageError(f"{name} is {value!r}, of type {type(value).__name__}.", remedy=remedy)
