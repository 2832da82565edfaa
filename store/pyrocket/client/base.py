"""`BaseClient`: producers and consumers are started once and closed once."""

import threading
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from pyrocket.client.instance import Instance, check_client_name, closed_error
from pyrocket.client.server import ClientTarget
from pyrocket.client.transport import Member
from pyrocket.errors import InvalidInputError

_Self = TypeVar("_Self", bound="BaseClient")
_T = TypeVar("_T")


class ClientState(str, Enum):
    """Whether a client works."""

    NEW = "new"
    RUNNING = "running"
    FAILED = "failed"
    """It cannot go on: `BaseClient.error` is the reason. Close it."""
    CLOSED = "closed"


_NEW, _STARTED, _CLOSED = ClientState.NEW, ClientState.RUNNING, ClientState.CLOSED


class BaseClient:
    """The base of producers and consumers. Safe to share between threads.

    It starts in a `with` block, or by `start`. A forked child creates its own.
    """

    _instance: Instance

    def __init__(self, server: ClientTarget, instance: str) -> None:
        """`instance` is the name in the client id. Raises InvalidInputError (CLIENT_NAME)."""
        check_client_name(instance)
        self._server, self._name = server, instance
        self._lock, self._state = threading.Lock(), _NEW
        self._member: Member | None = None
        self._failure: BaseException | None = None

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
            self._instance = Instance.acquire(*self._server, name=self._name)
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
        return self._instance.client_id if self._member is None else self._member.client_id

    @property
    def state(self) -> ClientState:
        """Whether the client works; FAILED if it cannot go on."""
        return ClientState.FAILED if self.error is not None else self._state

    @property
    def error(self) -> BaseException | None:
        """The reason why a started client cannot go on; None if there is none."""
        if self._state is not _STARTED:
            return None
        return self._failure or self._instance.error

    def _begin(self) -> None:
        """Start; called when the instance has been acquired."""
        raise NotImplementedError

    def _end(self) -> None:
        """Stop; called before the instance is released."""
        raise NotImplementedError

    def _in_loop(self, function: Callable[[], _T]) -> _T:
        """Call a function of the core in the event loop. Raises the errors of a closed client."""

        async def call() -> _T:
            return function()

        return self._started.run(call())

    @property
    def _started(self) -> Instance:
        """The instance. Raises the errors of a client that is not started, or closed."""
        self._check_started()
        return self._instance

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
