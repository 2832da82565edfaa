"""Timing in pairs: ours and the reference in turn, so that a drift of the machine hits both."""

import os
import sys
import time
from dataclasses import dataclass
from statistics import median

MIB = 1 << 20


@dataclass(frozen=True)
class Pair:
    """Medians in seconds, and the median over the pairs of reference / ours."""

    ours: float
    reference: float
    ratio: float


def measure(ours, reference, rounds, warm_up=1):
    """Time both functions `rounds` times in turn; each may return the seconds that count."""
    for _ in range(warm_up):
        ours()
        reference()
    times = [(_time(ours), _time(reference)) for _ in range(rounds)]
    return Pair(
        median(mine for mine, _ in times),
        median(other for _, other in times),
        median(other / mine for mine, other in times),
    )


def _time(function):
    start = time.perf_counter()
    told = function()
    spent = time.perf_counter() - start
    return told if isinstance(told, float) else spent


class Report:
    """One line a figure: what, ours, the reference, the ratio, and what was hoped for."""

    def __init__(self, capsys, quiet):
        self._capsys, self._quiet = capsys, quiet

    def rate(self, name, pair, amount, unit, hoped=""):
        """Print amount per second of both, and ours as a share of the reference."""
        ours, reference = amount / pair.ours, amount / pair.reference
        self.line(
            f"{name}: {ours:,.2f} {unit}/s; reference {reference:,.2f} {unit}/s;"
            f" {pair.ratio:.0%} of it{hoped and f' (hoped for: {hoped})'}"
        )

    def line(self, text):
        if not self._quiet:
            with self._capsys.disabled():
                sys.stdout.write(f"\n  {text}")
                sys.stdout.flush()


def touch(path, size):
    """Have the system find memory for the first bytes of a file of zeros, so that writing them
    measures the writer: on virtual machines new memory can cost more than everything else."""
    with open(path, "r+b") as file:
        file.truncate(max(size, file.seek(0, os.SEEK_END)))
        for at in range(0, size, 4096):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(byte)
