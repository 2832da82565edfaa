"""How full a file system is."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DiskUsage:
    """Bytes used, and bytes that there are for users."""

    used_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        """The share that is used, 0 to 1."""
        return self.used_bytes / (self.total_bytes or 1)

    def excess_over(self, ratio: float) -> int:
        """Return how many bytes have to be freed to come down to a ratio; none: 0 or less."""
        return self.used_bytes - int(ratio * self.total_bytes)


def disk_usage(folders: Iterable[Path]) -> DiskUsage:
    """Return the usage of the fullest file system that the folders are on.

    As df and RocketMQ count: what is reserved for root is neither used nor free.
    """
    return max((_usage(folder) for folder in folders), key=lambda usage: usage.ratio)


def free_bytes(folder: Path) -> int:
    """Return the bytes that users may still write where the folder is."""
    blocks = os.statvfs(folder)
    return blocks.f_bavail * blocks.f_frsize


def _usage(folder: Path) -> DiskUsage:
    blocks = os.statvfs(folder)
    used = blocks.f_blocks - blocks.f_bfree
    return DiskUsage(used * blocks.f_frsize, (used + blocks.f_bavail) * blocks.f_frsize)
