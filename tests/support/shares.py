"""The parts of long tests: a share runs every time, the rest in the heavy run."""

import os

import pytest

TIMES = max(1, int(os.environ.get("PYROCKET_EXPLORE") or 1))
"""PYROCKET_EXPLORE=5 generates five times as many examples."""

STEPS = [5, pytest.param(1, marks=pytest.mark.heavy)]
"""The values of `every`: each fifth step of an operation, or in the heavy run every step."""

FEW_STEPS = [15, pytest.param(1, marks=pytest.mark.heavy)]
"""Like `STEPS`, for operations of a few hundred steps."""


def share(values, count):
    """Return the values for `parametrize`: `count` of them run every time, evenly spaced."""
    values = list(values)
    now = {number * len(values) // count for number in range(count)}
    return [
        value if number in now else pytest.param(*_parts(value), marks=pytest.mark.heavy)
        for number, value in enumerate(values)
    ]


def _parts(value):
    return value if isinstance(value, tuple) else (value,)
