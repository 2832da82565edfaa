"""The machine: this boot, its clocks, and what its file systems can carry and hold."""

import functools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyrocket.errors import UnsupportedError


@dataclass(frozen=True)
class DiskUsage:
    """Bytes used, and all bytes that users can have."""

    used_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        """The used share, 0 to 1."""
        return self.used_bytes / (self.total_bytes or 1)

    def excess_over(self, ratio: float) -> int:
        """Return how many bytes must be freed to reach a ratio; 0 or less if none."""
        return self.used_bytes - int(ratio * self.total_bytes)


def disk_usage(folders: Iterable[Path]) -> DiskUsage:
    """Return the usage of the fullest file system among those of the folders.

    Counts as df and RocketMQ do: space reserved for root is neither used nor free.
    """
    return max((_usage(folder) for folder in folders), key=lambda usage: usage.ratio)


def free_bytes(folder: Path) -> int:
    """Return the bytes that users can still write on the folder's file system."""
    blocks = os.statvfs(folder)
    return blocks.f_bavail * blocks.f_frsize


def _usage(folder: Path) -> DiskUsage:
    blocks = os.statvfs(folder)
    used = blocks.f_blocks - blocks.f_bfree
    return DiskUsage(used * blocks.f_frsize, (used + blocks.f_bavail) * blocks.f_frsize)


# Continues while the machine sleeps, if the system has such a clock.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NETWORK = ("nfs", "cifs", "smb", "afs", "9p", "sshfs")
_CLUSTER = (
    *("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs", "orangefs", "pvfs"),
    *("moosefs", "mfs", "lizardfs", "seaweedfs", "wekafs", "panfs"),
)
_OBJECTS = (
    *("s3fs", "goofys", "mountpoint-s3", "mount-s3", "gcsfuse", "blobfuse", "juicefs", "rclone"),
    *("alluxio", "ossfs", "hadoop-fuse", "fuse_dfs"),
)
_SHARED = _NETWORK + _CLUSTER + _OBJECTS
"""Prefixes of the types of file systems that several machines can mount.

9p is how virtual machines, WSL included, see their host's folders. Containers are not machines:
their file systems, such as overlay, virtiofs or a volume, are local.
"""


@functools.cache
def boot_id() -> bytes:
    """Return 16 bytes that change with every boot, after which the page cache is empty."""
    if sys.platform == "darwin":
        name = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    else:
        name = Path("/proc/sys/kernel/random/boot_id").read_text()
    return uuid.UUID(name.strip()).bytes


class BootTime(NamedTuple):
    """A time that all processes of the machine order alike, whatever its wall clock says.

    boot: the boot's id in hex; "" if the time is unknown. ns: nanoseconds since that boot.
    """

    boot: str
    ns: int

    def before(self, other: "BootTime") -> bool:
        """Whether this was certainly earlier; times of different boots cannot be compared."""
        return bool(self.boot) and self.boot == other.boot and self.ns < other.ns


def boot_time() -> BootTime:
    """Return the current time since boot."""
    return BootTime(boot_id().hex(), time.clock_gettime_ns(_SINCE_BOOT))


def refuse_network_file_system(path: Path) -> None:
    """Raise UnsupportedError if writers on several machines could meet under `path`."""
    kind = _file_system(path)
    if kind.removeprefix("fuse.").startswith(_SHARED):
        raise UnsupportedError(
            f"{path} lies on a network file system ({kind}), where processes on two machines share"
            " neither locks nor memory.",
            remedy="Keep the store on a local disk.",
            code="UNSUPPORTED_FILE_SYSTEM",
        )


def _file_system(path: Path) -> str:
    """Return the type of the mount that holds `path`; empty if unknown."""
    try:
        table = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""
    return _kind_of(os.stat(path).st_dev, table)


def _kind_of(device: int, table: str) -> str:
    """Return the type of a device's mount, by a table in the format of proc_pid_mountinfo(5)."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in table.splitlines():
        fields = line.split()
        if fields[2] == wanted:
            kind, source = fields[fields.index("-") + 1 :][:2]
            # Some drivers give the type only as the mount's source.
            return f"fuse.{source}" if kind == "fuse" else kind
    return ""
