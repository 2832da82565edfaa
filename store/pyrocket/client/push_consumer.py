"""`PushConsumer`: calls a listener with the messages of a group's queues."""

import asyncio
import inspect
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from pyrocket.base.arguments import counted
from pyrocket.base.clock import steady_clock, system_clock
from pyrocket.base.loop_threads import LoopThreads
from pyrocket.client.base import BaseClient
from pyrocket.client.config import ConsumerConfig, config_of, subscriptions_of
from pyrocket.client.core.consumer import ConsumerCore
from pyrocket.client.core.group_member import QueuesChanged
from pyrocket.client.core.listening import ListenerExitError, Stats
from pyrocket.client.instance import Instance
from pyrocket.client.local_offsets import offsets_of
from pyrocket.client.results import Listener
from pyrocket.client.server import server_of
from pyrocket.client.tracing import Tracer
from pyrocket.client.transport import Member
from pyrocket.errors import InvalidInputError
from pyrocket.values.consuming import Subscription
from pyrocket.values.message import MessageQueue, StoredMessage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyrocket.base.credentials import Credentials
    from pyrocket.client.config import ConsumerSettings


_log = logging.getLogger(__name__)


class PushConsumer(BaseClient):
    """A member of a consumer group that passes messages to a listener.

    It starts in a `with` block, or by `start`. Safe to share between threads::

        def bill(messages):
            return ConsumeResult.SUCCESS

        with PushConsumer("billing", path="/data/store", subscriptions={"orders": "*"},
                          listener=bill) as consumer:
            consumer.wait()

    Each message is delivered at least once. Messages whose consumption failed are delivered again
    after a delay that grows with the attempts, and become dead letters after the last attempt.

    `start` also raises TopicNotFoundError, GroupNotFoundError, TransportError, and
    InvalidInputError: ILLEGAL_FILTER_EXPRESSION, DUPLICATE_CLIENT. `close` waits for running
    listeners, commits their results, and leaves the group; what listeners have not finished after
    `stop_timeout_ms` is delivered again.
    """

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription | str],
        listener: Listener,
        endpoint: str | None = None,
        endpoint_url: str | None = None,
        path: str | PathLike[str] | None = None,
        credentials: "Credentials | None" = None,
        instance: str = "",
        queues_changed: QueuesChanged | None = None,
        before_consume: Callable[[list[StoredMessage]], None] | None = None,
        after_consume: Callable[[list[StoredMessage], object], None] | None = None,
        **settings: "Unpack[ConsumerSettings]",
    ) -> None:
        """Check the arguments; nothing is opened before `start`.

        group: The consumer group.
        subscriptions: Topic → tags separated by `||`, or `Subscription(sql, "SQL92")`.
        listener: Consumes messages; see `Listener`.
        endpoint: The addresses of brokers or name servers, separated by commas.
        endpoint_url: The URL of a text with such addresses, which is read every 2 minutes.
        path: The directory of a store, which is opened in this process.
        credentials: For the endpoint: TLS and the user.
        instance: The name in the client id: distinguishes the consumers of one process.
        queues_changed: Called by the event loop with a topic, its queues, and those of this member.
        before_consume: Called with the messages before the listener.
        after_consume: Called with the messages, and the listener's result or exception.
        settings: See `ConsumerConfig`.

        Raises InvalidInputError: CONSUMER_CONFIG, CONSUMER_LISTENER, CLIENT_SERVER, CLIENT_NAME;
        GroupNameError, TopicNameError.
        """
        server = server_of(endpoint, path, credentials, endpoint_url=endpoint_url)
        super().__init__(server, instance)
        self._config = config_of(
            ConsumerConfig, type(self), group=group, subscriptions=subscriptions, **settings
        )
        hooks = {"before_consume": before_consume, "after_consume": after_consume}
        _check_callable(listener=listener, queues_changed=queues_changed, **hooks)
        self._listener, self._queues_changed = listener, queues_changed
        self._before, self._after = before_consume, after_consume
        self._core: ConsumerCore | None = None
        self._tracer: Tracer | None = None
        self._threads: LoopThreads
        self._ended: Future[None] = Future()
        self._listening, self._timing = threading.local(), threading.Lock()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is closed; return False if `timeout` seconds pass first.

        Raises what the listener raised to end the program, such as SystemExit.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.done():
            left = _LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                self._ended.result(min(left, _LONGEST_WAIT_S))
            except WaitTimeoutError:
                if self.error is not None:
                    raise self.error from None
        self._ended.result()
        return True

    def subscribe(self, topic: str, subscription: Subscription | str = "*") -> None:
        """Consume a topic from now on, or change what is consumed of it.

        Raises TopicNotFoundError, and InvalidInputError: CLIENT_NOT_STARTED, CONSUMER_CONFIG,
        ILLEGAL_FILTER_EXPRESSION.
        """
        self._check_started()
        (checked,) = subscriptions_of({topic: subscription}).values()
        self._instance.run(self._running.subscribe(topic, checked))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic: its queues are released soon. An unknown topic is ignored."""
        self._in_loop(lambda: self._running.unsubscribe(topic))

    def suspend(self) -> None:
        """Pull no more messages until `resume`; the queues stay with this consumer.

        The listener still gets the messages that were pulled before, and those of a pull that waits
        at its broker, for up to 15 s.
        """
        self._in_loop(lambda: self._running.suspend())

    def resume(self) -> None:
        """Pull messages again after `suspend`."""
        self._in_loop(lambda: self._running.resume())

    @property
    def _running(self) -> ConsumerCore:
        assert self._core is not None
        return self._core

    @property
    def stats(self) -> Stats:
        """Counts since the start."""
        return Stats() if self._core is None else self._core.stats

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this consumer holds, sorted."""
        return [] if self._core is None else sorted([*self._core.held])

    def close(self) -> None:
        """Stop, and leave the group; see the class. Raises InvalidInputError (CLIENT_DEADLOCK) in a
        listener.
        """
        if getattr(self._listening, "now", False):
            raise InvalidInputError(
                "a listener closed its consumer, which waits for its listeners.",
                remedy="Close the consumer in another thread.",
                code="CLIENT_DEADLOCK",
            )
        super().close()

    def _begin(self) -> None:
        self._threads = LoopThreads(self._config.thread_max, "pyrocket-listener")
        self._member = self._instance.join(self._config.group)
        try:
            self._instance.run(self._start_core(self._instance, self._member))
        except BaseException:
            self._threads.shutdown(wait=False)
            self._instance.leave(self._config.group, self._member)
            raise

    def _end(self) -> None:
        try:
            unfinished = self._instance.run(self._running.stop())
            if unfinished:
                _log.warning("%s not consumed before the stop", counted(unfinished, "message"))
            if self._tracer is not None:
                self._instance.run(self._tracer.stop())
        finally:
            self._threads.shutdown(wait=False)
            self._instance.leave(self._config.group, cast(Member, self._member))
            if not self._ended.done():
                self._ended.set_result(None)

    async def _start_core(self, instance: Instance, member: Member) -> None:
        if self._config.trace_topic:
            self._tracer = Tracer(self._config.trace_topic, self._config.group, instance)
            await self._tracer.start()
        # Set before the start: a listener may run, and count, before the start has ended.
        self._core = core = ConsumerCore(
            self._config,
            member,
            instance.transport,
            offsets_of(
                self._config.group,
                self._config.message_model,
                instance.transport,
                member,
                (self._name or "DEFAULT") + member.client_id.removeprefix(instance.client_id),
            ),
            self._listen,
            now_ms=system_clock(),
            random=random.Random(),
            boot_s=lambda: steady_clock() / 1000,
            queues_changed=self._queues_changed,
        )
        try:
            await core.start()
        except BaseException:
            if self._tracer is not None:
                await self._tracer.stop()
            raise
        self._following = asyncio.ensure_future(self._follow(core))

    async def _follow(self, core: ConsumerCore) -> None:
        """Stop without a commit when the listener ends the program."""
        try:
            await core.exited
        except ListenerExitError as error:
            self._failure = error.__cause__ or error
            _log.error("the consumer of %r stops: %r", self._config.group, self._failure)
            await core.abandon()
            self._ended.set_exception(self._failure)

    async def _listen(self, queue: MessageQueue, messages: Any) -> object:
        return await self._threads.run(lambda: self._call([*messages]))

    def _call(self, messages: list[StoredMessage]) -> object:
        """Call the listener in a thread; wrap what ends the program."""
        result: object = None
        self._listening.now, began_ms = True, system_clock()
        request = self._tracer.consuming(messages) if self._tracer is not None else ""
        try:
            if self._before is not None:
                self.stats.call_back("before_consume", self._before, messages)
            result = _not_awaitable(self._timed(messages))
        except Exception as error:
            result = error
            raise
        except ListenerExitError as error:
            result = error.__cause__
            raise
        except BaseException as error:
            result = error
            raise ListenerExitError from error
        finally:
            self._listening.now = False
            if self._tracer is not None:
                self._tracer.consumed(request, messages, began_ms, result)
            if self._after is not None:
                self.stats.call_back("after_consume", self._after, messages, result)
        return result

    def _timed(self, messages: list[StoredMessage]) -> object:
        """Call the listener, and add its times to the statistics."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return self._listener(messages)
        finally:
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
            with self._timing:
                self.stats.listener_cpu_s += cpu
                self.stats.listener_wall_s += wall


_LONGEST_WAIT_S = 1.0
"""Python handles a signal that arrives just before a wait only after the wait."""


def _not_awaitable(result: object) -> object:
    """Return the result of a listener. Raises ListenerExitError if it would have to be awaited."""
    if not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise ListenerExitError from _async_error("the listener")


def _check_callable(**functions: object) -> None:
    for name, function in functions.items():
        if function is None and name != "listener":
            continue
        if not callable(function):
            raise InvalidInputError(
                f"{name} is {function!r}, which cannot be called.",
                remedy="Use a function.",
                code="CONSUMER_LISTENER",
            )
        if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
            raise _async_error(name)


def _async_error(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name} is an `async def` function, which is not awaited.",
        remedy="Use a function that returns its result, such as one that calls `asyncio.run`, or"
        " `asyncio.run_coroutine_threadsafe(...).result()` with a loop of your own.",
        code="LISTENER_ASYNC",
    )
