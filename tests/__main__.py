"""`python3 tests`: passes the tests; arguments go to pytest (`python3 tests -k offsets`).

All of them run two at a time, as most wait for Spark; what is chosen by arguments runs in order.
"""

import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "examples"))

import environment

TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]


def main() -> int:
    arguments = environment.ensure("dev", sys.argv[1:]) or TWO_AT_A_TIME
    # Only importable now.
    import pytest

    os.chdir(environment.CHECKOUT)
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
