"""Runs one harness with Atheris, a coverage-guided fuzzer (pip install '.[fuzz]').

    PYTHONPATH=store:tests python -m fuzz.run NAME FOLDER [OPTIONS OF LIBFUZZER]

FOLDER contains the initial inputs and receives new ones. A failure prints its input.
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
"""Harness → the module that contains it."""


def harness(name):
    """Return the function of this name."""
    module = __import__(f"fuzz.{TARGETS[name]}", fromlist=[name])
    return getattr(module, name)


def main(name, *options):
    import atheris

    with atheris.instrument_imports(include=["pyrocket"]):
        target = harness(name)
        from pyrocket.disk import io
    # Without power losses, an fsync only costs time.
    io.sync = io.sync_directory = lambda target: None
    logging.disable()
    atheris.Setup([sys.argv[0], *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
