"""Small file systems that a test can fill: each is a tmpfs, which only root can mount."""

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pytest

_BLOCK_BYTES = 1 << 20


class Disk:
    """A small file system, and a file that occupies its free space."""

    def __init__(self, folder):
        self.store, self._ballast = folder / "store", folder / "ballast"

    @property
    def free_bytes(self):
        usage = os.statvfs(self.store.parent)
        return usage.f_bavail * usage.f_frsize

    def fill(self, left=0):
        """Fill the disk until only `left` bytes are free."""
        # A broker may take some of the space in the meantime.
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while (free := self.free_bytes) > left:
                file.write(bytes(min(free - left, _BLOCK_BYTES)))

    def free(self):
        self._ballast.unlink()


@contextmanager
def mounted(folder, size_bytes):
    """Mount a file system at a new folder, and yield it; skip the test without the right to."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "pyrocket-test", folder]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs: it requires root")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
