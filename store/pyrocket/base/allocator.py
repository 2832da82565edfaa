"""Configures glibc's allocator in a process that sends or receives blocks.

By default glibc maps and unmaps memory for each block, which takes longer than copying the block.
Source: mallopt(3).
"""

import ctypes
import gc
from functools import cache

import pyarrow as pa

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_FROM, _KEPT = 32 << 20, 64 << 20
"""In bytes: the smallest allocation that is mapped, and the free memory that the process keeps."""

_ARENAS = 1
"""glibc's default is eight arenas for each core, each of which keeps free memory."""


@cache
def keep_blocks() -> None:
    """Keep the memory of freed blocks for later blocks. Does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_ARENA_MAX, _ARENAS)


def release_blocks() -> None:
    """Free the blocks of cancelled calls, and return free memory to the system.

    The traceback of a cancelled call refers to the call's block and to itself, so that only garbage
    collection frees the block. A process that is idle afterwards would not collect garbage.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
