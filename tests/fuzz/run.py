"""Gives one harness to Atheris, a coverage-guided fuzzer: pip install '.[fuzz]'.

PYTHONPATH=store:tests python -m fuzz.run NAME FOLDER [OPTIONS OF LIBFUZZER]

FOLDER holds the inputs to begin with, and gets what is found. A failure prints its input.
"""

import logging
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

TARGETS = {
    "record": "harnesses",
    "records": "harnesses",
    "properties": "harnesses",
    "body": "harnesses",
    "checkpoint": "harnesses",
    "message_id": "harnesses",
    "json_text": "harnesses",
    "timer_check": "harnesses",
    "timer_units": "harnesses",
    "log": "files",
    "queue": "files",
    "keys": "files",
    "table": "files",
    "own": "files",
    "timers": "timers",
}
"""Harness → the module that it is in."""


def harness(name):
    """The function of this name."""
    module = __import__(f"fuzz.{TARGETS[name]}", fromlist=[name])
    return getattr(module, name)


def main(name, *options):
    import atheris

    with atheris.instrument_imports(include=["pyrocket"]):
        target = harness(name)
        from pyrocket.disk import io
    # There are no power losses here, so an fsync is only slow.
    io.sync = io.sync_directory = lambda target: None
    logging.disable()
    atheris.Setup([sys.argv[0], *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
