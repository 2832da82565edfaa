"""Settings of glibc's allocator for a process that sends or receives blocks.

By default glibc maps each block into memory and unmaps it again, which costs more than to
copy it. Source: mallopt(3).
"""

import ctypes
from functools import cache

import pyarrow as pa

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_FROM, _KEPT = 32 << 20, 64 << 20
"""Bytes: what is mapped, and what stays with the process when it is free."""

_ARENAS = 2
"""Each of the others, by default eight for each core, would keep free memory of its own."""


@cache
def keep_blocks() -> None:
    """Let freed blocks be used again, from now on; other allocators than glibc's are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_ARENA_MAX, _ARENAS)


def release_blocks() -> None:
    """Return freed memory to the system."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
