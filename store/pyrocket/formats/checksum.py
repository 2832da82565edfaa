"""CRC-32 as in zlib and Java, for all bodies that are written or verified; and zlib.

zlib-ng uses the processor's carry-less multiplication: a CRC-32 of 1 KiB takes a fifth of the time.
"""

import zlib
from importlib import import_module
from typing import Any

try:
    fast_zlib: Any = import_module("zlib_ng.zlib_ng")
except ImportError:
    # Missing in a checkout or zip: zlib is slower and returns the same numbers and bytes.
    fast_zlib = zlib

crc32, adler32 = fast_zlib.crc32, fast_zlib.adler32
