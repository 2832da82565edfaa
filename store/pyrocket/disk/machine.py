"""The machine: its boot id, its clocks, and the types and usage of its file systems."""

import functools
import os
import shutil
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
    """Used bytes, and total bytes available to users."""

    used_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        """The used share, from 0 to 1."""
        return self.used_bytes / (self.total_bytes or 1)

    def excess_over(self, ratio: float) -> int:
        """Return the number of bytes to free to reach a ratio; 0 or less if none."""
        return self.used_bytes - int(ratio * self.total_bytes)


def disk_usage(folders: Iterable[Path]) -> DiskUsage:
    """Return the usage of the fullest file system of the folders.

    As for df and RocketMQ, space reserved for root is neither used nor free.
    """
    return max((_usage(folder) for folder in folders), key=lambda usage: usage.ratio)


def free_bytes(folder: Path) -> int:
    """Return the number of bytes available to users on the folder's file system."""
    return shutil.disk_usage(folder).free


def _usage(folder: Path) -> DiskUsage:
    known = shutil.disk_usage(folder)
    return DiskUsage(known.used, known.used + known.free)


# Prefers a clock that continues while the machine sleeps.
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

Virtual machines, including WSL, mount their host's folders with 9p. File systems of containers,
such as overlay, virtiofs or a volume, are local.
"""


@functools.cache
def boot_id() -> bytes:
    """Return 16 bytes that change with every boot. After a boot the page cache is empty."""
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
    """A time that is comparable between all processes of the machine, unlike the wall clock.

    boot: the boot id in hex; "" if the time is unknown. ns: nanoseconds since that boot.
    """

    boot: str
    ns: int

    def before(self, other: "BootTime") -> bool:
        """Whether this time is known to be earlier; times of different boots cannot be compared."""
        return bool(self.boot) and self.boot == other.boot and self.ns < other.ns


def boot_time() -> BootTime:
    return BootTime(boot_id().hex(), time.clock_gettime_ns(_SINCE_BOOT))


def refuse_network_file_system(path: Path) -> None:
    """Raise UnsupportedError if several machines could write to the file system of `path`."""
    kind = _file_system(path)
    if kind.removeprefix("fuse.").startswith(_SHARED):
        raise UnsupportedError(
            f"{path} is on a network file system ({kind}), where processes on two machines share"
            " neither locks nor memory.",
            remedy="Keep the store on a local disk.",
            code="UNSUPPORTED_FILE_SYSTEM",
        )


def _file_system(path: Path) -> str:
    """Return the file system type of `path`; "" if it is unknown."""
    try:
        table = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""
    return _kind_of(os.stat(path).st_dev, table)


def _kind_of(device: int, table: str) -> str:
    """Return a device's file system type from a table in the format of proc_pid_mountinfo(5)."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in table.splitlines():
        fields = line.split()
        if fields[2] == wanted:
            kind, source = fields[fields.index("-") + 1 :][:2]
            # Some drivers give the type only as the mount's source.
            return f"fuse.{source}" if kind == "fuse" else kind
    return ""
