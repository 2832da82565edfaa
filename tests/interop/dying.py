"""A process that dies in the middle of appending a batch over several log files.

Usage: python -m interop.dying STORE STEP TRACE whole|plain
"""

import functools
import sys

from crash.children import append_until_step
from pyrocket import Store

ROWS = [f"row{n} ".ljust(3000, "x") for n in range(80)]

if __name__ == "__main__":
    path, step, trace, kind = sys.argv[1:]
    Store.append_batch = functools.partialmethod(Store.append_batch, whole=kind == "whole")
    append_until_step(path, ROWS, int(step), True, trace)
