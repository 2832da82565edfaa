"""Follows the version of a remote store in the background, so that `version` makes no call."""

import threading
from collections.abc import Hashable
from contextlib import suppress

from pyrocket.base.clock import Pauses
from pyrocket.base.rounds import Rounds
from pyrocket.errors import PyrocketError
from pyrocket.remote.client import Client
from pyrocket.values.source import Version
from pyrocket.wire.descriptors import message_class
from pyrocket.wire.messages import value_of

_FOREVER_S = float("inf")


class VersionWatch:
    """Follows the versions that a broker streams, starting with the first call of `version`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._version: Hashable | None = None
        self._stream: object | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._rounds = Rounds()

    def version(self) -> Hashable:
        """Return the newest version.

        While the broker is unreachable, each call returns a new value. A caller then assumes a
        change, calls the broker, and gets the error.
        """
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._follow, name="pyrocket-versions", daemon=True
                )
                self._thread.start()
                self._changed.wait_for(lambda: self._version is not None, 1)
            return object() if self._version is None else self._version

    def wait(self, seen: Hashable, seconds: float) -> bool:
        """Wait until the version differs from `seen`; return False if `seconds` pass first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != seen, seconds)

    @property
    def session(self) -> object | None:
        """An object that identifies the current stream; None while there is no stream.

        A restart of the broker changes it.
        """
        return self._stream

    def close(self) -> None:
        """Stop at the next version, or when the connection is closed."""
        self._closed = True

    def _follow(self) -> None:
        pauses = Pauses(_FOREVER_S)
        while not self._closed:
            seen: list[object] = []
            self._rounds.run("following the versions failed", lambda: self._watch(seen))  # noqa: B023
            if seen:
                pauses = Pauses(_FOREVER_S)
            pauses.wait()

    def _watch(self, seen: list[object]) -> None:
        """Follow one stream; append to `seen` that it has started."""
        kind = message_class("pyrocket.v1.Version")
        session = object()
        # ValueError: this process has closed the connection.
        try:
            with suppress(PyrocketError, ValueError):
                for reply in self._client.stream("Watch"):
                    self._stream = session
                    self._set(value_of(kind.FromString(reply), Version))
                    seen[:] = [session]
                    if self._closed:
                        return
        finally:
            self._stream = None
            self._set(None)

    def _set(self, version: Hashable | None) -> None:
        with self._changed:
            self._version = version
            self._changed.notify_all()
