"""The table of cases in `engine/recovery.py` names tests that exist."""

import re
from pathlib import Path

from pyrocket.engine import recovery

TESTS = Path(__file__).resolve().parents[2]


def test_each_case_of_a_recovery_names_tests_that_exist():
    named = re.findall(r"\btest_\w+", recovery.__doc__)
    sources = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    existing = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    assert len(named) > 30
    assert set(named) - existing == set()
