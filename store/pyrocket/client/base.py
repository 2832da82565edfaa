"""`BaseClient`: producers and consumers are started once and closed once."""

import threading
from typing import TypeVar

from pyrocket.client.instance import Instance, check_client_name, closed_error
from pyrocket.client.server import Server
from pyrocket.errors import InvalidInputError

_Self = TypeVar("_Self", bound="BaseClient")

_NEW, _STARTED, _CLOSED = "not started", "started", "closed"


class BaseClient:
    """The base of producers and consumers. Safe to share between threads.

    It starts in a `with` block, or by `start`. A forked child creates its own.
    """

    _instance: Instance

    def __init__(self, server: Server, instance: str) -> None:
        """`instance` is the name in the client id. Raises InvalidInputError (CLIENT_NAME)."""
        check_client_name(instance)
        self._server, self._name = server, instance
        self._lock, self._state = threading.Lock(), _NEW

    def __enter__(self: _Self) -> _Self:
        if self._state != _STARTED:
            self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect, and start. Raises InvalidInputError (CLIENT_STARTED), StoreUnavailableError
        (CLIENT_CLOSED), and the errors of opening the store or connecting to the brokers; after
        these, it can be called again.
        """
        with self._lock:
            if self._state == _STARTED:
                raise InvalidInputError(
                    "this client was already started.",
                    remedy="Start it once: a `with` block does so, too.",
                    code="CLIENT_STARTED",
                )
            self._check_not_closed()
            self._instance = self._server.acquire(self._name)
            try:
                self._begin()
            except BaseException:
                self._instance.release()
                raise
            self._state = _STARTED

    def close(self) -> None:
        """Stop, and disconnect. Repeated calls, and calls in a forked child, do nothing."""
        with self._lock:
            before, self._state = self._state, _CLOSED
        if before != _STARTED or self._instance.is_forked:
            return
        try:
            self._end()
        finally:
            self._instance.release()

    @property
    def client_id(self) -> str:
        """The id of this client. Raises InvalidInputError (CLIENT_NOT_STARTED)."""
        self._check_started()
        return self._instance.member.client_id

    def _begin(self) -> None:
        """Start; called when the instance has been acquired."""
        raise NotImplementedError

    def _end(self) -> None:
        """Stop; called before the instance is released."""
        raise NotImplementedError

    def _check_started(self) -> None:
        self._check_not_closed()
        if self._state == _NEW:
            raise InvalidInputError(
                "this client was not started.",
                remedy="Call `start`, or use it in a `with` block.",
                code="CLIENT_NOT_STARTED",
            )

    def _check_not_closed(self) -> None:
        if self._state == _CLOSED:
            raise closed_error()
