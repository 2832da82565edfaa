"""Checks the space left on the file system of a store."""

import os
from pathlib import Path

from pyspark_pyrocket.tools.doctor.check import Check, fail, ok, warn

CLEAN_EXPIRED_PERCENT = 75
CLEAN_OLDEST_PERCENT = 85
REFUSE_WRITES_PERCENT = 90
"""RocketMQ's thresholds of how full the file system of a store may be."""


def check_space(store: str | None) -> Check:
    """Check how full the file system of the store is; it need not exist yet."""
    if not store:
        return ok("space", "no store named: give a PATH, or set PYROCKET_STORE")
    place = _nearest_existing(Path(store.removeprefix("file:")))
    try:
        blocks = os.statvfs(place)
    except OSError as error:
        return fail("space", f"{place}: {error.strerror}", "Name a directory that can be read.")
    # As df and RocketMQ count: what is reserved for root is neither used nor free.
    taken = blocks.f_blocks - blocks.f_bfree
    used = 100 * taken / ((taken + blocks.f_bavail) or 1)
    free = blocks.f_bavail * blocks.f_frsize / 2**30
    found = f"{place} is on a file system {used:.0f} % full, {free:.1f} GiB free"
    return judge_space(used, found)


def judge_space(used_percent: float, found: str) -> Check:
    """Return the verdict by RocketMQ's thresholds."""
    remedy = "Free some space, or shorten how long messages are kept."
    if used_percent >= REFUSE_WRITES_PERCENT:
        return fail("space", found, f"From {REFUSE_WRITES_PERCENT} % writes are refused. {remedy}")
    if used_percent >= CLEAN_OLDEST_PERCENT:
        limit = CLEAN_OLDEST_PERCENT
        return warn("space", found, f"From {limit} % the oldest files go unexpired. {remedy}")
    if used_percent >= CLEAN_EXPIRED_PERCENT:
        limit = CLEAN_EXPIRED_PERCENT
        return warn("space", found, f"From {limit} % expired files go at any hour. {remedy}")
    return ok("space", found)


def _nearest_existing(path: Path) -> Path:
    absolute = Path(os.path.abspath(path))
    return next(place for place in (absolute, *absolute.parents) if place.exists())
