"""`python3 tests` runs the tests; arguments are passed to pytest (`python3 tests -k offsets`).

Without arguments, the tests run in parallel, because they spend much of their time waiting for
Spark, and with their files in memory if possible. With arguments, the selected tests run one after
the other.
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "examples"))

import environment

A_FEW_AT_A_TIME = ["-n", "5", "--dist", "worksteal"]
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 6 << 30


def main() -> int:
    arguments = environment.ensure("dev", sys.argv[1:]) or A_FEW_AT_A_TIME
    # Before `ensure`, pytest may not be installed.
    import pytest

    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.chdir(environment.CHECKOUT)
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
