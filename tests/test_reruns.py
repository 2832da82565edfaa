"""A test that fails because a Spark worker did not connect in time is run once more; other failures
are not repeated.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUSY = "org.apache.spark.SparkException: Python worker failed to connect back."


CASES = [
    ("once", "spark", BUSY, 1, "RERUN PASSED"),
    ("nested", "spark", "java.net.SocketTimeoutException: " + BUSY, 1, "RERUN PASSED"),
    ("twice", "spark", BUSY, 2, "RERUN FAILED"),
    ("other", "spark", "AssertionError: 3 rows, not 4", 1, "FAILED"),
    ("without_spark", "crash", BUSY, 1, "FAILED"),
]


def test_only_a_test_whose_worker_did_not_connect_back_is_run_again(tmp_path):
    suite = "import pytest\n" + "".join(
        f"@pytest.mark.{mark}\n"
        f"def test_{name}(runs=[]):\n"
        "    runs.append(1)\n"
        f"    if len(runs) <= {failures}:\n"
        f"        raise RuntimeError({text!r})\n"
        for name, mark, text, failures, _ in CASES
    )
    (tmp_path / "test_busy.py").write_text(suite)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "-v",
        "-p",
        "conftest",
    ]
    command += ["-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path / "test_busy.py"]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    for name, *_, outcomes in CASES:
        shown = re.findall(rf"::test_{name} (RERUN|PASSED|FAILED)", done.stdout)
        assert shown == outcomes.split(), done.stdout + done.stderr
