"""A test that fails because a Spark worker did not connect in time is run once more; other failures
are not repeated.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUSY = "org.apache.spark.SparkException: Python worker failed to connect back."


@pytest.mark.parametrize(
    ("text", "failures", "outcome"),
    [
        (BUSY, 1, "1 passed, 1 rerun"),
        ("java.net.SocketTimeoutException: " + BUSY, 1, "1 passed, 1 rerun"),
        (BUSY, 2, "1 failed, 1 rerun"),
        ("AssertionError: 3 rows, not 4", 1, "1 failed in"),
    ],
)
def test_only_a_test_whose_worker_did_not_connect_back_is_run_again(
    tmp_path, text, failures, outcome
):
    (tmp_path / "test_busy.py").write_text(
        "runs = []\n"
        "def test_busy():\n"
        "    runs.append(1)\n"
        f"    if len(runs) <= {failures}:\n"
        f"        raise RuntimeError({text!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path / "test_busy.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
