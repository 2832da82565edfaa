"""`python3 tests`: passes the tests; arguments go to pytest (`python3 tests -k offsets`)."""

import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "examples"))

import environment


def main() -> int:
    arguments = environment.ensure("dev", sys.argv[1:])
    # Only importable now.
    import pytest

    os.chdir(environment.CHECKOUT)
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
