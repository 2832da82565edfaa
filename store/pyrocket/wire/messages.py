"""Converts values to protobuf messages and back, by the names of their fields.

- A dataclass or named tuple corresponds to a message with the same fields; None is a missing field.
- A mapping whose keys are not strings becomes repeated pairs of `key` and `value`.
- A message whose only field is `values` is a list.
- A union of classes is a message with one `oneof`, whose fields are named after the classes.

A new type therefore needs a message in the `.proto` file, and no code here.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from pyrocket.filters.message_filter import MessageFilter

_T = TypeVar("_T")

_PLAIN = frozenset({bytes, str, int, bool})
"""The types of values that need no conversion."""


def fill(message: Message, values: Mapping[str, Any]) -> Message:
    """Set the fields of a message, and return it. Raises KeyError if a field is unknown."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if value is not None:
            _set(message, fields[name], value)
    return message


def _set(message: Message, field: Any, value: Any) -> None:
    inner = getattr(message, field.name)
    if _is_map(field):
        if field.message_type.fields_by_name["value"].message_type:
            for key, item in value.items():
                put(inner[key], item)
        else:
            inner.update(value)
    elif hasattr(inner, "extend"):
        _extend(inner, field, value.items() if _has_pairs(field, value) else value)
    elif field.message_type:
        inner.SetInParent()
        put(inner, value)
    else:
        setattr(message, field.name, value)


def _extend(target: Any, field: Any, values: Iterable[Any]) -> None:
    if not field.message_type:
        target.extend(values)
        return
    for value in values:
        put(target.add(), value)


def put(message: Message, value: Any) -> None:
    """Set the fields of a message to those of a value."""
    kind = message.DESCRIPTOR
    if _is_union(kind):
        fill(message, {_snake(type(value).__name__): value})
    elif isinstance(value, MessageFilter):
        fill(message, {"tags": " || ".join(sorted(value.tags or ())), "sql": value.sql})
    elif dataclasses.is_dataclass(value):
        fields = kind.fields_by_name
        fill(message, {name: getattr(value, name) for name in fields})
    elif list(kind.fields_by_name) == ["values"]:
        fill(message, {"values": value})
    else:
        names = kind.fields_by_name
        fill(message, dict(zip(names, value, strict=True)))


def values_of(message: Message, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields named in `hints`, converted to the types given there."""
    fields = message.DESCRIPTOR.fields_by_name
    return {name: _get(message, fields[name], hint) for name, hint in hints.items()}


def value_of(reply: Message, kind: type[_T] | UnionType) -> _T:
    """Return a reply as a value of this type: its only field `value`, or all its fields."""
    fields = reply.DESCRIPTOR.fields_by_name
    is_wrapped = [*fields] == ["value"]
    value: _T = _get(reply, fields["value"], kind) if is_wrapped else _value(reply, kind)
    return value


def _get(message: Message, field: Any, hint: Any) -> Any:
    hint, optional = _without_none(hint)
    is_missing = field.has_presence and not message.HasField(field.name)
    if is_missing and (optional or hint is MessageFilter):
        return None
    return _value(getattr(message, field.name), hint)


def _value(raw: Any, hint: Any) -> Any:
    """Return a field's value converted to the type `hint`."""
    if hint in _PLAIN:
        return raw
    kind, inner = _parts(hint)
    if kind in (Union, UnionType):
        return _one_of(raw, inner)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if isinstance(raw, Message):
        return _structure(raw, hint, kind, inner)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        if isinstance(raw, Mapping):
            return {key: _value(raw[key], inner[1]) for key in raw}
        return {_value(pair.key, inner[0]): _value(pair.value, inner[1]) for pair in raw}
    if isinstance(kind, type) and issubclass(kind, Collection):
        values = [*raw] if inner[0] in _PLAIN else [_value(item, inner[0]) for item in raw]
        return tuple(values) if kind is tuple else values
    return raw


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint) or hint, get_args(hint)


def _structure(raw: Message, hint: Any, kind: Any, inner: tuple[Any, ...]) -> Any:
    names = [*raw.DESCRIPTOR.fields_by_name]
    if kind is MessageFilter:
        return MessageFilter.parse(**{name: getattr(raw, name) for name in names})
    if kind is tuple:
        return tuple(
            _value(getattr(raw, name), part) for name, part in zip(names, inner, strict=True)
        )
    if names == ["values"]:
        return _value(getattr(raw, *names), hint)
    hints = _hints(kind)
    return kind(**values_of(raw, {name: hints[name] for name in names if name in hints}))


def _one_of(raw: Message, kinds: tuple[Any, ...]) -> Any:
    chosen = raw.WhichOneof("kind")
    by_name = {_snake(kind.__name__): kind for kind in kinds}
    return _value(getattr(raw, chosen or ""), by_name[chosen or ""])


@cache
def _without_none(hint: Any) -> tuple[Any, bool]:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    rest = [kind for kind in kinds if kind is not NoneType]
    if len(rest) == len(kinds):
        return hint, False
    return reduce(or_, rest), True


_hints = cache(get_type_hints)


def _is_map(field: Any) -> bool:
    inner = field.message_type
    return bool(inner and inner.GetOptions().map_entry)


def _has_pairs(field: Any, value: Any) -> bool:
    """Whether a repeated field has the keys and the values of a mapping, and not only its keys."""
    kind = field.message_type
    return isinstance(value, Mapping) and bool(kind) and "value" in kind.fields_by_name


@cache
def _is_union(kind: Any) -> bool:
    return any(oneof.name == "kind" for oneof in kind.oneofs)


def _snake(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
