"""A process that dies while appending a batch over several log files.

Usage: python -m interop.dying STORE STEP TRACE whole|plain|sink
"""

import functools
import sys

from crash.children import append_until_step, publish_until_step
from pyrocket import Store

ROWS = [f"row{n} ".ljust(3000, "x") for n in range(80)]

if __name__ == "__main__":
    path, step, trace, kind = sys.argv[1:]
    if kind == "sink":
        publish_until_step(path, 0, "run-1", ROWS, int(step), True, trace)
    Store.append_batch = functools.partialmethod(Store.append_batch, whole=kind == "whole")
    append_until_step(path, ROWS, int(step), True, trace)
