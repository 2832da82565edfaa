"""Settings of glibc's allocator for a process that sends or receives blocks.

By default glibc maps each block of 1 MiB into memory and unmaps it again, which costs more than to
copy it. Source: mallopt(3).
"""

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAPPED_FROM, _KEPT = 32 << 20, 256 << 20
"""Bytes: what is mapped, and what stays with the process when it is free."""


@cache
def keep_blocks() -> None:
    """Let freed blocks be used again, from now on; other allocators than glibc's are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
