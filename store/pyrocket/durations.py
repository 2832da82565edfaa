"""Lengths of time as people write them, in milliseconds.

Of one delay: `10m`, `2h30m`, `1d`, `90s`, `500ms`, the greater unit first. Of all delay levels:
`1s 5s 10s 30s 1m …`, RocketMQ's messageDelayLevel, one unit each
(`ScheduleMessageService.parseDelayLevel`).
"""

import re

from pyrocket.errors import OptionError

_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,10}}){unit})?" for unit in _MS))
_LEVEL = re.compile("([0-9]{1,10})([smhd])")
MOST_DELAY_LEVELS = 64
"""Each has a queue and a cursor of its own."""


def parse_duration(text: str) -> int | None:
    """Return the milliseconds that `text` says, or None if it says none."""
    found = _DURATION.fullmatch(text)
    if not text or not found:
        return None
    return sum(int(count or 0) * ms for count, ms in zip(found.groups(), _MS.values(), strict=True))


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of level 1, 2, … Raises OptionError (DELAY_LEVELS)."""
    found = [_LEVEL.fullmatch(word) for word in text.split()]
    if not 1 <= len(found) <= MOST_DELAY_LEVELS or None in found:
        raise OptionError(
            f"delay_levels is {text!r}.",
            remedy=f"Name 1 to {MOST_DELAY_LEVELS} delays in whole s, m, h or d, as in"
            " '1s 5s 10s 30s 1m'.",
            code="DELAY_LEVELS",
        )
    return tuple(int(level[1]) * _MS[level[2]] for level in found if level)
