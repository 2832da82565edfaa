"""The tests in the table of `engine/recovery.py` exist."""

import re
from pathlib import Path

from pyrocket.engine import recovery

TESTS = Path(__file__).resolve().parents[2]


def test_the_tests_listed_for_recovery_cases_exist():
    named = re.findall(r"\btest_\w+", recovery.__doc__)
    sources = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    existing = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    assert len(named) > 30
    assert set(named) - existing == set()
