"""Damage of a bit, a block, the end or the whole of a file is detected or harmless. The docstring
of `damage_rounds` lists the changes that no checksum detects.
"""

import os
import subprocess
import sys

import pytest
from crash.damage import KINDS, make_template
from crash.damage_rounds import LONGEST_ROUND

pytestmark = pytest.mark.crash

ROUNDS, HEAVY_ROUNDS, PART = 8, 5000, 200


def run_rounds(first, count):
    """Run rounds in a separate process, so that the last seed is known if the process dies."""
    repeat = f"PYTHONPATH=store:tests python -m crash.damage_rounds {first} {count}"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    run = subprocess.run(
        [sys.executable, "-m", "crash.damage_rounds", str(first), str(count)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=count * LONGEST_ROUND,
    )
    reported = run.stdout.splitlines()[-1:] or ["none began"]
    failed = (
        f"{repeat}\nstatus {run.returncode}, last reported: {reported[0]}\n{run.stderr[-20_000:]}"
    )
    assert run.returncode == 0, failed
    sys.stdout.write(f"seeds {first} to {first + count - 1}: {reported[0]}\n")


def test_every_file_of_a_store_has_a_kind(tmp_path):
    make_template(tmp_path)
    known = {path for pattern in KINDS.values() for path in tmp_path.glob(pattern)}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} <= known
    assert not [kind for kind in KINDS if kind != "abort" and not [*tmp_path.glob(KINDS[kind])]]


def test_a_few_damaged_stores_lose_no_message_silently():
    run_rounds(0, ROUNDS)


@pytest.mark.heavy
@pytest.mark.parametrize("first", range(ROUNDS, ROUNDS + HEAVY_ROUNDS, PART))
def test_five_thousand_damaged_stores_lose_no_message_silently(first):
    """After a failure, run the remaining parts with `-k`."""
    run_rounds(first, PART)
