"""What `Deduplicated` requires of a store of marks: `DeduplicationStore`."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol


class Mark(Enum):
    """The answer of `DeduplicationStore.begin` for one key."""

    BEGUN = "begun by this call"
    DONE = "done earlier: the message is a duplicate"
    BUSY = "begun by another call whose lease has not ended"


class DeduplicationStore(Protocol):
    """Marks keys as begun, until a lease ends, or as done, until the mark expires.

    Consumers of one group share the marks, in threads and in processes. Several groups can use the
    same file or table, because every mark belongs to a group. Times are epoch milliseconds.
    An `owner` identifies one call of `begin`.
    """

    @property
    def is_atomic(self) -> bool:
        """Whether the marks and the work of one call of `begin` are all committed or all undone."""

    def begin(self, keys: Sequence[str], owner: str, now: int, lease_ms: int) -> list[Mark]:
        """Mark keys as begun until `now + lease_ms`; return one mark for each key, in order.

        `keys` contains no key twice. Marks that have expired, and marks whose lease has ended, are
        replaced. The call may wait until other owners have finished. If it does not wait, it stops
        at the first key that is BUSY, whose mark is then the last in the result.
        """

    def done(self, keys: Sequence[str], owner: str, now: int, keep_ms: int) -> None:
        """Mark begun keys as done until `now + keep_ms`. If this raises, the work is repeated."""

    def release(self, keys: Sequence[str], owner: str) -> None:
        """Delete the marks that this owner has begun, so that the keys can be begun again."""

    def expire(self, now: int, limit: int) -> int:
        """Delete marks that have expired, at most `limit`; return their number.

        Expired marks have no effect: deleting them only frees space.
        """
