"""Which numbers can be limits and sizes: comparisons alone let NaN through, and True is 1."""

import re
from numbers import Integral, Real
from typing import Any

from pyrocket.errors import OptionError

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,30})([kmgt]?)(?:i?b)?", re.IGNORECASE)

LONGEST_MS = 2**42
"""The longest wait, about 139 years: what the system can be asked to wait for."""


def is_number(value: Any) -> bool:
    """Whether it is a whole number, numpy's too; True and False are none."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_whole(value: Any, least: int = 0, most: int = 2**63 - 1) -> bool:
    """Whether it is a whole number from `least` to `most`."""
    return is_number(value) and bool(least <= value <= most)


def check_whole(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> None:
    """Raise OptionError unless it is a whole number from `least` to `most`."""
    if not is_whole(value, least, most):
        raise OptionError(
            f"{name} is {value!r}.", remedy=f"Use a whole number from {least} to {most}."
        )


def parse_size(text: str) -> int | None:
    """Return the bytes that a text such as `512`, `64k`, `10g` or `1TiB` names, else None.

    Units are powers of 1024. The result may be larger than any file system.
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * _BYTES[found[2].lower()] if found else None


def format_size(size: int) -> str:
    """Return bytes as people read them, such as `512 bytes` or `1.5 GiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size} bytes"


def check_amount(name: str, value: Any) -> None:
    """Raise OptionError unless it is a number from 0 on; it may be infinite, but not NaN."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and value >= 0):
        raise OptionError(f"{name} is {value!r}.", remedy="Use a number from 0 on.")
