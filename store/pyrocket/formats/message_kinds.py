"""Checks the types of the fields of a message."""

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from pyrocket.base.arguments import is_number
from pyrocket.errors import MessageError
from pyrocket.values.message import Message


def check_message_kinds(message: Message) -> None:
    """Raise MessageError that names the first field of a wrong type. Called for each append."""
    if not isinstance(message, Message):
        _refuse("the message", message, "Append a pyrocket.Message(topic=…, body=…).")
    for name, text in (("tags", message.tags), ("sharding_key", message.sharding_key)):
        if text is not None and not isinstance(text, str):
            _refuse(name, text, "Use a string (str), or None.")
    if message.queue_id is not None and not is_number(message.queue_id):
        _refuse("queue_id", message.queue_id, "Use a whole number (int), or None.")
    if not is_number(message.flag):
        _refuse("flag", message.flag, "Use a whole number (int); 0 is the default.")
    if message.keys != () and not isinstance(message.keys, str):
        _check_keys(message.keys)
    if message.properties != {}:
        _check_properties(message.properties)


def _check_keys(keys: Any) -> None:
    # The type is compared first because isinstance with an abstract class takes a microsecond.
    if type(keys) is not list and (isinstance(keys, bytes) or not isinstance(keys, Collection)):
        _refuse("keys", keys, "Use a list of strings (str); () for none.")
    for key in keys:
        if not isinstance(key, str):
            _refuse("one of the keys", key, "Use texts (str).")


def _check_properties(properties: Any) -> None:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        _refuse("properties", properties, "Use a dict of strings (str); {} for none.")
    for name, value in properties.items():
        if not isinstance(name, str):
            _refuse("the name of a property", name, "Use a string (str).")
        if not isinstance(value, str):
            _refuse(f"property {name!r}", value, f"Use a string (str), such as {str(value)!r}.")


def _refuse(name: str, value: Any, remedy: str) -> NoReturn:
    raise MessageError(f"{name} is {value!r}, of type {type(value).__name__}.", remedy=remedy)
