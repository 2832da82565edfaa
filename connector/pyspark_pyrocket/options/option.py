"""One option: its row in `connector/OPTIONS.md`, and how its text is parsed.

A dataclass that options are read into has an `Option` as the default of each field:

    class Splitting:
        min_tasks: int | None = Option("minPartitions", READS, WHOLE, "Approximate …").field()

`rows_of` collects the rows of such classes, and `read_fields` the values of one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from pyrocket import parse_duration, parse_size
from pyrocket.errors import OptionError

BATCH, STREAM, SINK = "batch", "stream", "sink"
READ = "read"
"""A read that may become a batch or a stream: the options of both are accepted."""

READS = (BATCH, STREAM)
ALL = (BATCH, STREAM, SINK)

SERVERS = ("endpoint", "namesrv")
TARGETS = ("path", *SERVERS)
STORES = ("path", "endpoint")
"""The options that name a target: SERVERS name servers instead of a directory, and STORES stores of
pyrocket instead of a cluster of RocketMQ."""

_MAX = 2**63 - 1
_ROWS, _READ = "rows", "read"
"""Metadata of a field: its options, and whether `read_fields` reads it."""

_Value = TypeVar("_Value")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Kind(Generic[_Value]):
    """The kind of an option's values.

    values: the valid values, as lists of options print them. parse: returns the value
    for the option's name and text; raises OptionError. default: the value if the option is not
    given. shown: the default as `OPTIONS.md` prints it.
    """

    values: str
    parse: Callable[[str, str], _Value]
    default: _Value
    shown: str = "none"

    def then(self, convert: Callable[[_Value], Other]) -> "Kind[Other]":
        """Return the same kind with a further conversion of its values."""
        return Kind(
            self.values,
            lambda option, text: convert(self.parse(option, text)),
            convert(self.default),
            self.shown,
        )


@dataclass(frozen=True)
class Option(Generic[_Value]):
    """One option.

    default: as `OPTIONS.md` prints it; if empty, the default of the kind. instead: the remedy for a
    query that does not have the option. targets: the options that name a target for which it has a
    meaning.
    """

    name: str
    queries: tuple[str, ...]
    kind: Kind[_Value]
    meaning: str
    default: str = ""
    instead: str = ""
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self) -> None:
        object.__setattr__(self, "default", self.default or self.kind.shown)

    def serves(self, query: str) -> bool:
        """Return whether a query of this kind has the option."""
        return query in self.queries or (query == READ and self.queries != (SINK,))

    def field(self) -> _Value:
        """Return a dataclass field that holds the option's value."""
        return field(default=self.kind.default, metadata={_ROWS: (self,), _READ: True})


def made_of(*options: Option[Any]) -> dict[str, Any]:
    """Return the metadata of a field whose value is derived from several options."""
    return {_ROWS: options}


def rows_of(*classes: Any) -> tuple[Option[Any], ...]:
    """Return the options of these dataclasses, in the order of their fields."""
    return tuple(
        row for cls in classes for part in fields(cls) for row in part.metadata.get(_ROWS, ())
    )


@dataclass(frozen=True)
class OptionReader:
    """The options of a query by name, and the kind of query."""

    values: dict[str, str]
    query: str

    def __contains__(self, option: str) -> bool:
        return option in self.values

    def text(self, option: str, default: str = "") -> str:
        """Return the text of an option, without surrounding spaces."""
        return self.values.get(option, default).strip()

    def read(self, option: Option[_Value], kind: Kind[_Value] | None = None) -> _Value:
        """Return the value of an option, or its default. Raises OptionError.

        kind: the kind of its values in this query, if different from the option's own.
        """
        kind = kind or option.kind
        if option.name not in self:
            return kind.default
        return kind.parse(option.name, self.text(option.name))

    def read_fields(self, options: Any) -> dict[str, Any]:
        """Return the values of all fields of a dataclass that hold one option each."""
        return {
            part.name: self.read(part.metadata[_ROWS][0])
            for part in fields(options)
            if part.metadata.get(_READ)
        }

    def wrong(self, option: str, remedy: str) -> OptionError:
        return invalid(option, self.values[option], remedy)

    def refuse_together(self, first: str, second: str, remedy: str) -> None:
        """Raise OptionError (OPTION_CONFLICT) if both are given."""
        if first in self and second in self:
            raise conflict(f"Both {first!r} and {second!r} are given.", remedy)


def invalid(option: str, text: str, remedy: str) -> OptionError:
    return OptionError(f"Option {option!r} is {text!r}.", remedy=remedy)


def parsed_by(parse: Callable[[str], _Value], remedy: str) -> Callable[[str, str], _Value]:
    """Return the parser of an option whose text `parse` parses or rejects."""

    def parsed(option: str, text: str) -> _Value:
        try:
            return parse(text)
        except (OptionError, ValueError) as error:
            raise invalid(option, text, remedy) from error

    return parsed


def conflict(message: str, remedy: str) -> OptionError:
    """Return the error about options that exclude each other (OPTION_CONFLICT)."""
    return OptionError(message, remedy=remedy, code="OPTION_CONFLICT")


def choice(*words: str) -> Kind[str]:
    """Return a kind whose values are these names, ignoring case; the first is the default.

    If the first name is empty, it is the default, but the option cannot be set to it.
    """
    *others, last = filter(None, words)
    remedy = f"Use {', '.join(others)} or {last}." if others else f"Use {last}."

    def parse(option: str, text: str) -> str:
        if not text or text.lower() not in words:
            raise invalid(option, text, remedy)
        return text.lower()

    return Kind(" | ".join([*others, last]), parse, words[0], f"`{words[0]}`")


def boolean(*, default: bool) -> Kind[bool]:
    return choice(*(("true", "false") if default else ("false", "true"))).then("true".__eq__)


def whole(least: int = 1) -> Kind[int | None]:
    """Return a kind whose values are whole numbers of at least `least`; None by default."""

    def parse(option: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= _MAX):
            raise invalid(option, text, f"Write a whole number of at least {least}.")
        return int(text)

    return Kind("whole number", parse, None)


def duration(default_ms: int, shown: str) -> Kind[int]:
    """Return a kind whose values are durations, in ms."""

    def parse(option: str, text: str) -> int:
        length = parse_duration(text.lower())
        if length is None:
            raise invalid(option, text, "Write a duration, as in 500ms, 30s, 15m or 2h30m.")
        return length

    return Kind("duration", parse, default_ms, shown)


def _parse_size(option: str, text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise invalid(option, text, "Write bytes, as in 1048576, 512k, 64m or 2g.")
    if not 1 <= size <= _MAX:
        raise invalid(option, text, "Write at least one byte, and fewer than 2^63.")
    return size


TEXT = Kind("text", lambda _, text: text, "")
WHOLE = whole()
SIZE: Kind[int | None] = Kind("bytes", _parse_size, None)
