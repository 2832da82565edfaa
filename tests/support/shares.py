"""The parts of long tests: a share runs every time, the rest in the heavy run."""

import os

import pytest

TIMES = max(1, int(os.environ.get("PYROCKET_EXPLORE") or 1))
"""PYROCKET_EXPLORE=5 generates five times as many examples."""


def share(values, count):
    """Return the values for `parametrize`: `count` of them run every time, evenly spaced."""
    values = list(values)
    now = {number * len(values) // count for number in range(count)}
    return [
        value if number in now else pytest.param(value, marks=pytest.mark.heavy)
        for number, value in enumerate(values)
    ]
