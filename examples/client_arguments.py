"""The arguments of the client examples: a store by `--path`, or its broker by `--endpoint`."""

import argparse
from typing import Any


def given_server() -> dict[str, Any]:
    """Return {"path": directory} or {"endpoint": "host:port"}, as clients accept it."""
    parser = argparse.ArgumentParser()
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--path", metavar="DIRECTORY", help="a store, created if it is missing")
    one.add_argument("--endpoint", metavar="HOST:PORT", help="the broker of a store")
    given = vars(parser.parse_args())
    return {name: value for name, value in given.items() if value is not None}
