"""The hash ring of RocketMQ's allocation by consistent hash.

A member has several points on the ring, its virtual nodes. A key belongs to the member with the
first point at or after the hash of the key; after the last point, the ring continues at the first.
The hash of a string is the first four bytes of the MD5 of its UTF-8 bytes, big-endian. Source:
`ConsistentHashRouter`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from hashlib import md5


class HashRing:
    """A ring with `virtual_nodes` points for each name.

    The points are the hashes of `name-0`, `name-1`, and so on. If two points have the same hash,
    the later one replaces the earlier one. A name that is given twice receives twice as many
    points.
    """

    def __init__(self, names: Iterable[str], virtual_nodes: int) -> None:
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for name in names:
            first = sum(owner == name for owner in owners.values()) if name in seen else 0
            for number in range(first, first + virtual_nodes):
                owners[_hash(f"{name}-{number}")] = name
            seen.add(name)
        self._points = sorted(owners)
        self._owners = [owners[point] for point in self._points]

    def owner(self, key: str) -> str | None:
        """Return the name to which a key belongs; None if the ring is empty."""
        if not self._points:
            return None
        return self._owners[bisect_left(self._points, _hash(key)) % len(self._points)]


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
