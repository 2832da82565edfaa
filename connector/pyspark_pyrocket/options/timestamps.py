"""Times as users write them: epoch milliseconds, ISO-8601, or a duration before now. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyrocket import parse_duration
from pyrocket.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECONDS_BELOW = 10**11
"""Smaller numbers are probably seconds: as milliseconds they are before 1973."""
_ISO = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)"
    r"(?:[Tt ](\d\d)(?:(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)?)?(?:([Zz])|([+-]\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
"""Date, T or a space, time and zone, in both forms of ISO-8601: with and without - and :."""


@dataclass(frozen=True)
class Timestamp:
    """A time: `ms` since the epoch or, if `relative`, from the start of the query.

    note: a log line about how the text was interpreted, or an empty string.
    """

    ms: int
    relative: bool = False
    note: str = ""

    def at(self, now_ms: int) -> int:
        """Return the time in epoch milliseconds, for a query that starts at `now_ms`."""
        return now_ms + self.ms if self.relative else self.ms


def parse_timestamp(where: str, value: object) -> Timestamp:
    """Return the time in an option's text, or in a JSON number. Raises OptionError."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = value.strip() if isinstance(value, str) else ""
    moment = _number(where, text) or _relative(text) or _iso(where, text)
    if moment is None:
        raise OptionError(
            f"{where}: {value!r} is not a time.",
            remedy="Write epoch milliseconds, ISO-8601 such as 2026-01-31T12:00:00Z, or a duration "
            "before now, such as -15m or -2h30m.",
        )
    return moment


def _number(where: str, text: str) -> Timestamp | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        return None
    ms = int(text)
    if 0 < ms < _SECONDS_BELOW:
        date = (_EPOCH + timedelta(milliseconds=ms)).date()
        return Timestamp(ms, note=f"{where}: {ms} ms is a time on {date}; were seconds meant?")
    return Timestamp(ms)


def _relative(text: str) -> Timestamp | None:
    if text.lower() == "now":
        return Timestamp(0, relative=True)
    length = parse_duration(text[1:].strip().lower()) if text.startswith("-") else None
    return None if length is None else Timestamp(-length, relative=True)


def _iso(where: str, text: str) -> Timestamp | None:
    # Not `fromisoformat` of the text: the forms it accepts depend on Python's version.
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, _, month, day, hour, _, minute, second, fraction, zulu, zone, past = found.groups("")
    try:
        time = datetime.fromisoformat(
            f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}"
            f"{zone or '+00'}:{past or '00'}"
        )
    except ValueError:
        return None
    note = "" if zulu or zone else f"{where}: {text!r} has no time zone and is read as UTC"
    # Store times are whole milliseconds: round up.
    parts = fraction.ljust(3, "0")
    up = int(parts[:3]) + any(digit != "0" for digit in parts[3:])
    return Timestamp((time - _EPOCH) // timedelta(milliseconds=1) + up, note=note)
