"""Options: their rows in the tables of the READMEs, and typed access to what a user gave."""

from dataclasses import dataclass

from pyrocket import parse_duration, parse_size
from pyrocket.errors import OptionError

BATCH, STREAM, SINK = "batch", "stream", "sink"
READ = "read"
"""A read that has not yet said whether it will stream: the options of both are fine."""

READS = (BATCH, STREAM)
ALL = (BATCH, STREAM, SINK)


@dataclass(frozen=True)
class Option:
    """One option; `default` and `meaning` are as the README prints them.

    instead: what somebody does who wanted it in a query that does not have it.
    """

    name: str
    default: str
    queries: tuple[str, ...]
    meaning: str
    instead: str = ""

    def serves(self, query: str) -> bool:
        """Tell whether a query of this kind has the option."""
        return query in self.queries or (query == READ and self.queries != (SINK,))


_MAX = 2**63 - 1
NONE = frozenset({"none", "unlimited"})
"""What lifts a limit."""


@dataclass(frozen=True)
class OptionReader:
    """Option → text, by the names of the table, and the kind of query that they are for."""

    values: dict[str, str]
    query: str

    def __contains__(self, option: str) -> bool:
        return option in self.values

    def text(self, option: str, default: str = "") -> str:
        """Return what the user wrote, without spaces around it."""
        return self.values.get(option, default).strip()

    def one_of(self, option: str, allowed: tuple[str, ...]) -> str:
        """Return one of the words; the first is the default, which may be empty."""
        value = self.text(option, allowed[0]).lower()
        if value not in allowed or (option in self and not value):
            *others, last = filter(None, allowed)
            choice = f"{', '.join(others)} or {last}" if others else last
            raise self.wrong(option, f"Use {choice}.")
        return value

    def boolean(self, option: str, *, default: bool) -> bool:
        """Return true or false."""
        words = ("true", "false") if default else ("false", "true")
        return self.one_of(option, words) == "true"

    def whole(self, option: str, *, least: int = 1) -> int | None:
        """Return a whole number, or None where the user gave none."""
        if option not in self:
            return None
        text = self.text(option)
        if not (text.isascii() and text.isdigit() and least <= int(text) <= _MAX):
            raise self.wrong(option, f"Write a whole number of at least {least}.")
        return int(text)

    def size(self, option: str) -> int | None:
        """Return a number of bytes, such as 64m, or None where the user gave none."""
        if option not in self:
            return None
        size = parse_size(self.text(option))
        if size is None:
            raise self.wrong(option, "Write bytes, as in 1048576, 512k, 64m or 2g.")
        if not 1 <= size <= _MAX:
            raise self.wrong(option, "Write at least one byte, and fewer than 2^63.")
        return size

    def duration_ms(self, option: str) -> int | None:
        """Return a length of time in ms, or None where the user gave none."""
        if option not in self:
            return None
        length = parse_duration(self.text(option).lower())
        if length is None:
            raise self.wrong(option, "Write a length of time, as in 500ms, 30s, 15m or 2h30m.")
        return length

    def is_lifted(self, option: str) -> bool:
        """Tell whether the user lifted this limit with a word."""
        return self.text(option).lower() in NONE

    def wrong(self, option: str, remedy: str) -> OptionError:
        """Return the error of an option that says what it cannot say."""
        return OptionError(f"Option {option!r} is {self.values[option]!r}.", remedy=remedy)

    def refuse_together(self, first: str, second: str, remedy: str) -> None:
        """Raise OptionError (OPTION_CONFLICT) if both are given."""
        if first in self and second in self:
            raise OptionError(
                f"Both {first!r} and {second!r} are given.", remedy=remedy, code="OPTION_CONFLICT"
            )
