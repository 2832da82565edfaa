"""`Instance`: the event loop, thread and connections that the clients of a process share.

Producers and consumers of one server, with the same credentials, use one instance. Its thread runs
their cores; the threads of the application pass coroutines to it. Source: `MQClientInstance`,
`MQClientManager`.
"""

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, count
from typing import Any, TypeVar

from pyrocket.base.arguments import check_text
from pyrocket.client.core.routes import Routes
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import InvalidInputError, StoreUnavailableError

Connect = Callable[[], Awaitable[ClientTransport]]
"""Returns a transport; called in the event loop of the instance."""

BLOCKING_CALLS = 8
"""Maximum number of threads for calls that block, such as those of a store in this process."""

_CANCEL_S = 5
"""How long closing waits for coroutines that do not end when they are cancelled."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Instance:
    """An event loop in a daemon thread, with a transport. Safe to share between threads.

    Get one with `Instance.acquire`, and release it exactly once. After a fork, `submit` and `run`
    raise StoreUnavailableError (CLIENT_FORKED) in the child; a new instance can be acquired there.

    Attributes:
        client_id: The id of this instance, and of its first consumer in each group.
        error: The error that has ended the thread; None while it runs.
        transport: The calls to the brokers; used by coroutines in the event loop only.
        routes: The routes of topics that the clients share; also used in the event loop only.
    """

    transport: ClientTransport
    routes: Routes

    def __init__(self, name: str = "") -> None:
        """Start the thread. Clients call `acquire`.

        name: The name in the client id; empty for the process id and a number.
        """
        self.client_id = client_id(name)
        self.error: BaseException | None = None
        self._members: set[tuple[str, str]] = set()
        self._process, self._users = os.getpid(), 1
        self._key: Hashable = None
        self._ended = threading.Event()
        self._lock, self._closed = threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(BLOCKING_CALLS, "pyrocket-client-call"))
        self._thread = threading.Thread(target=self._run, name="pyrocket-client", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, key: Hashable, connect: Connect, *, name: str = "") -> "Instance":
        """Return the instance for a key and name, which is created and connected if there is none.

        key: The server and the credentials.
        name: Distinguishes the clients of one process; part of the client id. With equal names, the
            instance is shared. Raises InvalidInputError (CLIENT_NAME, NOT_A_TEXT) if it is illegal.

        Raises the errors of `connect`.
        """
        check_client_name(name)
        while True:
            with _instances.lock:
                instance = _instances.known.get((key, name))
                if instance is None:
                    return cls._connected((key, name), connect, name)
                if instance._users:
                    instance._users += 1
                    return instance
            instance._ended.wait()

    @classmethod
    def _connected(cls, key: Hashable, connect: Connect, name: str) -> "Instance":
        instance = cls(name)
        try:
            instance.run(instance._connect(connect))
        except BaseException:
            instance._close()
            raise
        instance._key = key
        _instances.known[key] = instance
        return instance

    async def _connect(self, connect: Connect) -> None:
        self.transport = await connect()
        self.routes = Routes(self.transport)

    def join(self, group: str) -> Member:
        """Return the identity of a new consumer in a group: `leave` releases it.

        The first consumer of a group has the id of this instance, the next one `<id>#2`.
        """
        with self._lock:
            later = (f"{self.client_id}#{number}" for number in count(2))
            name = next(
                n for n in chain([self.client_id], later) if (group, n) not in self._members
            )
            self._members.add((group, name))
        return Member(name, secrets.token_hex(16))

    def leave(self, group: str, member: Member) -> None:
        """Release the id of a consumer that was closed."""
        with self._lock:
            self._members.discard((group, member.client_id))

    def submit(self, coroutine: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Run a coroutine in the event loop; called by any thread.

        Cancelling the future cancels the coroutine. Callbacks of the future are called in the event
        loop and must not block. Raises StoreUnavailableError (CLIENT_CLOSED, CLIENT_FORKED).
        """
        try:
            self._check_process()
            with self._lock:
                if self._closed:
                    raise closed_error()
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except StoreUnavailableError:
            coroutine.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the event loop, and wait for its result in the calling thread.

        Raises StoreUnavailableError: CLIENT_CLOSED if the instance is closed before the result,
        CLIENT_FORKED. Raises InvalidInputError (CLIENT_DEADLOCK) if the caller is the thread of the
        event loop, which would wait for itself.
        """
        try:
            self.check_may_wait()
        except InvalidInputError:
            coroutine.close()
            raise
        return wait_for(self.submit(coroutine))

    def check_may_wait(self) -> None:
        """Raise InvalidInputError (CLIENT_DEADLOCK) in the thread of the event loop."""
        if self.is_in_loop:
            raise InvalidInputError(
                "a callback called a method that waits for a reply.",
                remedy="Call it in another thread, or use the asynchronous method.",
                code="CLIENT_DEADLOCK",
            )

    @property
    def is_in_loop(self) -> bool:
        """Whether the caller is the thread of the event loop."""
        return threading.current_thread() is self._thread

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that created the instance."""
        return os.getpid() != self._process

    def release(self) -> None:
        """Close the instance if no other client uses it: cancel coroutines and disconnect.

        In a forked child this does nothing.
        """
        if self.is_forked:
            return
        with _instances.lock:
            self._users -= 1
            if self._users:
                return
        self._close()

    def _close(self) -> None:
        with self._lock:
            if self.error is not None:
                return
            asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop)
            self._closed = True
        if not self.is_in_loop:
            self._thread.join()

    async def _disconnect(self) -> None:
        """Cancel all other coroutines, close the transport, and stop the loop."""
        try:
            await self._end_all()
        finally:
            self._loop.call_soon(self._loop.stop)

    async def _end_all(self) -> None:
        try:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=_CANCEL_S)
            if hasattr(self, "transport"):
                await self.transport.close()
        except Exception:
            _log.exception("a client did not disconnect cleanly")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:  # The application's code has ended this thread.
            self.error, self._closed = error, True
            _log.exception("the thread of a client has ended: its clients cannot go on")
            self._loop.run_until_complete(self._end_all())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._forget()
            self._ended.set()

    def _forget(self) -> None:
        # An instance that could not connect has no key; `acquire` has the lock, and waits for it.
        if self._key is not None:
            with _instances.lock:
                del _instances.known[self._key]

    def _check_process(self) -> None:
        if self.is_forked:
            raise StoreUnavailableError(
                "this client was created before the process was forked.",
                remedy="Create a client in each process.",
                code="CLIENT_FORKED",
            )


class _Instances:
    """The instances of this process by key and name."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Remove all instances: a forked child has neither their threads nor their connections."""
        self.lock, self.known = threading.Lock(), dict[Hashable, Instance]()


_instances = _Instances()
os.register_at_fork(after_in_child=_instances.forget)


def check_client_name(name: str) -> None:
    """Raise InvalidInputError (CLIENT_NAME, NOT_A_TEXT) unless a client id can contain the name."""
    check_text(name=name)
    if len(name) > _MAX_NAME or not all(char.isprintable() and char not in " @" for char in name):
        raise InvalidInputError(
            f"{name!r} is not a legal name for a client.",
            remedy=f"Use at most {_MAX_NAME} printable characters without spaces and `@`.",
            code="CLIENT_NAME",
        )


_MAX_NAME = 100


def client_id(name: str = "") -> str:
    """Return a client id as RocketMQ's clients have it: `ip@pid#nanos`, or `ip@name`."""
    return f"{_local_address()}@{name or f'{os.getpid()}#{time.monotonic_ns()}'}"


def _local_address() -> str:
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


def wait_for(future: "Future[_T]") -> _T:
    """Wait for the result of a coroutine that was submitted to an instance.

    If the wait is interrupted, the coroutine is cancelled. Raises StoreUnavailableError
    (CLIENT_CLOSED) if the instance was closed.
    """
    try:
        return future.result()
    except CancelledError:
        raise closed_error() from None
    except BaseException:
        future.cancel()  # The caller was interrupted; otherwise this has no effect.
        raise


def closed_error() -> StoreUnavailableError:
    """Return the error of a client that is closed."""
    return StoreUnavailableError(
        "this client is closed.", remedy="Create another one.", code="CLIENT_CLOSED"
    )
