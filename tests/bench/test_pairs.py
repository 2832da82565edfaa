"""Aims of benchmarks: a large run fails if it misses an aim in two measurements."""

import subprocess
import sys

import pytest
from bench.pairs import Pair, Report, cpu_seconds, measure


@pytest.fixture
def judge(capsys, monkeypatch):
    """Compares the given ratios with an aim of 0.8; returns the number of measurements."""
    monkeypatch.setattr(Report, "line", lambda report, text: None)

    def compare(*ratios, small=False):
        left = list(ratios)
        report = Report(capsys, quiet=small)
        report.share("reading", lambda: Pair(1.0, 1.0, left.pop(0)), 1_000, 0.8)
        return len(ratios) - len(left)

    return compare


def test_a_ratio_above_nine_tenths_of_the_aim_is_not_measured_again(judge):
    assert judge(0.8, 0.1) == 1
    assert judge(0.721, 0.1) == 1


def test_a_miss_is_measured_again_before_it_fails(judge):
    assert judge(0.719, 0.73) == 2
    with pytest.raises(
        pytest.fail.Exception, match=r"reading: 0\.70 of the reference; the aim is 0.8"
    ):
        judge(0.719, 0.70)


def test_small_runs_are_not_compared_with_aims(judge):
    assert judge(0.01, small=True) == 1


def test_cpu_time_includes_running_and_ended_processes():
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    before = cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert cpu_seconds() - before >= 0.2
        child.communicate(b"\n")
    assert cpu_seconds() - before >= 0.2


def test_a_duration_that_a_function_returns_is_used_instead_of_the_clock():
    pair = measure(lambda: 2.0, lambda: 1.0, 3, clock=lambda: 0.0)
    assert pair == Pair(2.0, 1.0, 0.5)
