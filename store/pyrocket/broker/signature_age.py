"""Refuses calls that were signed too long ago, or too far in the future."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyrocket.base.clock import Clock, system_clock
from pyrocket.errors import NotAuthenticatedError

_DATE = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[T ](\d\d):?(\d\d):?(\d\d)(?:\.\d*)?(?:Z|([+-])(\d\d):?(\d\d))?"
)


@dataclass(frozen=True)
class SignatureAge:
    """The maximum difference between the date of a signature and the broker's clock.

    Official clients except the one for Node.js sign their local time as if it were UTC. A date is
    therefore compared with both UTC and the broker's local time.
    """

    max_s: float = 0
    """0: the date is not checked."""
    clock: Clock = system_clock

    def check(self, signed: bytes) -> None:
        """Raise NotAuthenticatedError unless the signed date is close to the broker's clock."""
        if not self.max_s:
            return
        now = datetime.fromtimestamp(self.clock() / 1000, timezone.utc)
        offset = now.astimezone().utcoffset() or timedelta()
        date = _parsed(signed)
        if date is not None and self.max_s >= min(
            abs((date - each).total_seconds()) for each in (now, now + offset)
        ):
            return
        raise NotAuthenticatedError(
            f"The call was signed at {signed.decode(errors='replace')!r}, but the clock of the"
            f" broker shows {now:%Y%m%dT%H%M%SZ}: signatures are valid for {self.max_s:g} s.",
            remedy="Correct the clock, or the time zone, of the client or of the broker, or set"
            " signature_age of the broker to 0.",
        )


ANY_AGE = SignatureAge()


def _parsed(signed: bytes) -> datetime | None:
    """Return the date of RocketMQ's form or of RFC 3339; None for any other text."""
    found = _DATE.fullmatch(signed.decode(errors="replace"))
    if found is None:
        return None
    *fields, sign, hours, minutes = found.groups(default="")
    try:
        year, month, day, hour, minute, second = map(int, fields)
        date = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return date - offset if sign == "+" else date + offset
    except (ValueError, OverflowError):
        return None
