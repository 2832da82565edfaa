"""`Cached`: a value that is read again only if it may have changed."""

from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Cached(Generic[_Value]):
    """A value that is read again only if its stamp has changed. Safe to share between threads."""

    def __init__(self, stamp: Callable[[], object], read: Callable[[], _Value]) -> None:
        self._stamp, self._read = stamp, read
        self._known: tuple[object, _Value] | None = None

    def __call__(self) -> _Value:
        """Return the value. Raises the errors of `stamp` and `read`."""
        stamp, known = self._stamp(), self._known
        if known is None or known[0] != stamp:
            known = self._known = stamp, self._read()
        return known[1]
