"""Measures pairs: runs of pyrocket and of the reference alternate, so that a change of the
machine's speed affects both.
"""

import os
import sys
import time
from dataclasses import dataclass
from statistics import median

import psutil
import pytest

MIB = 1 << 20

ROUNDS = 7
"""Minimum number of pairs if a figure is compared with an aim."""

TOLERATED = 0.9
"""A benchmark fails if two measurements are below this share of its aim.

Measurements vary, so a single low measurement is repeated before the benchmark fails.
"""


@dataclass(frozen=True)
class Pair:
    """The median seconds of both functions, and the median of the ratios reference / ours."""

    ours: float
    reference: float
    ratio: float


def cpu_seconds():
    """Return the CPU time of this process and its descendants, including Spark's JVM and
    workers."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue  # The process has ended: its CPU time is included in its parent's.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(ours, reference, rounds, warm_up=1, clock=time.perf_counter):
    """Run both functions alternately, `rounds` times each. A function may return its duration in
    seconds; otherwise the call is timed.
    """
    for _ in range(warm_up):
        ours()
        reference()
    times = []
    for number in range(rounds):
        # The order alternates, so that neither function always runs with the caches of the other.
        if number % 2:
            other = _time(reference, clock)
            times.append((_time(ours, clock), other))
        else:
            times.append((_time(ours, clock), _time(reference, clock)))
    return Pair(
        median(mine for mine, _ in times),
        median(other for _, other in times),
        median(other / mine for mine, other in times),
    )


def _time(function, clock):
    start = clock()
    result = function()
    spent = clock() - start
    return result if isinstance(result, float) else spent


class Report:
    """Prints one line for each figure: name, measured value, reference, ratio, and target."""

    def __init__(self, capsys, quiet):
        self._capsys, self._quiet = capsys, quiet

    def rate(self, name, pair, amount, unit, hoped=""):
        """Print the rates of pyrocket and of the reference, and their ratio."""
        ours, reference = amount / pair.ours, amount / pair.reference
        self.line(
            f"{name}: {ours:,.2f} {unit}/s; reference {reference:,.2f} {unit}/s;"
            f" {pair.ratio:.0%} of the reference{hoped and f' (target: {hoped})'}"
        )

    def share(self, name, measured, rows, aim):
        """Print the CPU time per row of pyrocket and of the reference; fail if the aim is missed.

        `measured` returns a Pair in CPU seconds. It is called again if the ratio is less than
        TOLERATED of the aim. Small runs measure, but do not compare the ratio with the aim.
        """
        for _ in range(2):
            pair = measured()
            ours, reference = (seconds / rows * 1e6 for seconds in (pair.ours, pair.reference))
            self.line(
                f"{name}: {ours:.3f} µs of CPU per row; reference {reference:.3f} µs;"
                f" {pair.ratio:.2f} of the reference (aim: ≥ {aim})"
            )
            if self._quiet or pair.ratio >= aim * TOLERATED:
                return
        pytest.fail(f"{name}: {pair.ratio:.2f} of the reference; the aim is {aim}")

    def rate_share(self, name, measured, amount, unit, aim):
        """Print rates as `rate` does; if the aim is missed, fail as `share` does."""
        for _ in range(2):
            pair = measured()
            self.rate(name, pair, amount, unit, f"≥ {aim:.0%}")
            if self._quiet or pair.ratio >= aim * TOLERATED:
                return
        pytest.fail(f"{name}: {pair.ratio:.2f} of the reference; the aim is {aim}")

    def line(self, text):
        if not self._quiet:
            with self._capsys.disabled():
                sys.stdout.write(f"\n  {text}")
                sys.stdout.flush()


def touch(path, size):
    """Allocate the first bytes of a file of zeros, so that a benchmark measures the writer.

    On virtual machines, new memory pages can take longer than everything else.
    """
    with open(path, "r+b") as file:
        file.truncate(max(size, file.seek(0, os.SEEK_END)))
        for at in range(0, size, 4096):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(byte)
