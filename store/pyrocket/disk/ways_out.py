"""What to do about an error of the operating system."""

import errno

_PLACE = (
    "Look at that path: what belongs there is missing, or something else lies in its place; restore"
    " the one or move the other away"
)
_FIRST = {
    errno.ENOSPC: "Free space",
    errno.EDQUOT: "Free space, or raise the quota",
    errno.EROFS: "Mount the file system for writing",
    errno.EIO: "Repair the disk",
    errno.EMFILE: "Allow the process more open files (`ulimit -n`)",
    errno.ENFILE: "Allow the machine more open files",
    errno.ENOMEM: "Free memory",
    **dict.fromkeys((errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR), _PLACE),
}


def way_out(error: OSError, then: str) -> str:
    """Return what to do about it before `then`, such as "try again"."""
    first = _FIRST.get(error.errno or 0, "Free space or repair the disk")
    return f"{first}, then {then}."
