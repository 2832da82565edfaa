"""`Producer`: sends messages to brokers, or to a store in the same process."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from os import PathLike
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from pyrocket.base.arguments import LONGEST_MS, check_type, check_whole
from pyrocket.base.clock import system_clock
from pyrocket.base.failures import Failures
from pyrocket.client.base import BaseClient
from pyrocket.client.config import ProducerConfig, config_of
from pyrocket.client.core.sending import ANYWHERE, Sending, SendTarget
from pyrocket.client.instance import closed_error, wait_for
from pyrocket.client.local_transactions import LocalTransactions, check_listener
from pyrocket.client.outgoing import check_batch, check_outgoing, outgoing
from pyrocket.client.selection import Selector
from pyrocket.client.send_hooks import SendContext, SendHook
from pyrocket.client.server import server_of
from pyrocket.client.tracing import Tracer
from pyrocket.engine.message_encoder import UniqueIds
from pyrocket.errors import BrokerBusyError, InvalidInputError
from pyrocket.values.message import Message, MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.transactions import TransactionListener, TransactionSendResult

_T = TypeVar("_T")


class PendingSends:
    """Counts the sends that are not finished."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count = limit, 0
        self._changed = threading.Condition()

    def add(self, timeout_s: float) -> None:
        """Count a send. Raises BrokerBusyError (TOO_MANY_SENDS) if there is no room in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count < self._limit, timeout_s):
                raise BrokerBusyError(
                    f"{self._count} sends are not finished.",
                    remedy="Send more slowly, or increase `max_pending`.",
                    code="TOO_MANY_SENDS",
                )
            self._count += 1

    def remove(self) -> None:
        """Remove a finished send."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a send, regardless of the limit, while the `with` block runs."""
        with self._changed:
            self._count += 1
        try:
            yield
        finally:
            self.remove()

    def wait(self, timeout_s: float) -> None:
        """Wait until all sends are finished, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout_s)


def chained(
    future: "Future[list[SendResult]]",
    convert: Callable[[list[SendResult]], _T],
    after: Callable[[Sequence[SendResult], BaseException | None], None] = lambda *_: None,
) -> "Future[_T]":
    """Return a future of the converted result; `after` is called before it is resolved.

    Cancelling it cancels the send.
    """
    result: Future[_T] = Future()

    def resolve(done: "Future[list[SendResult]]") -> None:
        error = closed_error() if done.cancelled() else done.exception()
        results = [] if error else done.result()
        after(results, error)
        if not result.set_running_or_notify_cancel():
            return
        if error is None:
            result.set_result(convert(results))
        else:
            result.set_exception(error)

    result.add_done_callback(lambda done: future.cancel() if done.cancelled() else None)
    future.add_done_callback(resolve)
    return result


if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyrocket.base.credentials import Credentials
    from pyrocket.client.config import ProducerSettings

_log = logging.getLogger(__name__)


class Producer(BaseClient):
    """Sends messages. Safe to share between threads; a forked child creates its own.

    It starts in a `with` block, or by `start`::

        with Producer(path="/data/store") as producer:
            producer.send(Message(topic="orders", body=b"3 apples", keys=["o-1"]))

    Methods that send raise MessageError and TopicNameError for a message that cannot be sent,
    InvalidInputError (CLIENT_NOT_STARTED), StoreUnavailableError (CLIENT_CLOSED, CLIENT_FORKED) and
    BrokerBusyError (TOO_MANY_SENDS) if `max_pending` sends are not finished within the time-out.
    Results and futures also have the errors of `Sending.send`. `close` waits for the sends that
    were started, at most for the time-out.
    """

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        endpoint: str | None = None,
        endpoint_url: str | None = None,
        path: str | PathLike[str] | None = None,
        credentials: "Credentials | None" = None,
        create: bool = False,
        instance: str = "",
        listener: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
        **settings: "Unpack[ProducerSettings]",
    ) -> None:
        """Check the arguments; nothing is opened before `start`.

        group: The producer group, which is asked about transactions.
        endpoint: The addresses of brokers or name servers, separated by commas.
        endpoint_url: The URL of a text with such addresses, which is read every 2 minutes.
        credentials: For the endpoint: TLS and the user.
        path: The directory of a store, which is opened in this process.
        create: Whether a missing store is created at `path`.
        instance: The name in the client id; clients of one server and name share connections.
        listener: Executes and checks transactions; its `check` is called in a thread of its own.
        hooks: Called before and after each send.
        settings: See `ProducerConfig`.

        Raises InvalidInputError: CLIENT_SERVER unless exactly one of endpoint and path is given,
        PRODUCER_CONFIG, CLIENT_NAME, WRONG_TYPE, GROUP_ILLEGAL.
        """
        self._config = config_of(ProducerConfig, type(self), group=group, **settings)
        server = server_of(endpoint, path, credentials, endpoint_url=endpoint_url, create=create)
        super().__init__(server, instance)
        check_type((list, tuple), "Use a list of SendHook.", hooks=hooks)
        for hook in hooks:
            check_type(SendHook, "Derive it from SendHook.", hook=hook)
        if listener is not None:
            check_listener(listener)
        self._listener, self._hooks, self._failures = listener, [*hooks], Failures()
        self._ids, self._pending = UniqueIds(system_clock), PendingSends(self._config.max_pending)
        self._sending: Sending
        self._tracer: Tracer | None = None
        self._transactions: LocalTransactions | None = None

    def _begin(self) -> None:
        self._instance.run(self._create_cores())

    async def _create_cores(self) -> None:
        instance, config = self._instance, self._config
        random = Random(secrets.randbits(64))
        self._sending = Sending(config, instance.transport, instance.routes, random)
        if config.trace_topic:
            self._tracer = Tracer(config.trace_topic, config.group, instance)
            await self._tracer.start()
        if self._listener is not None:
            self._transactions = LocalTransactions(
                config, self._listener, instance, self._sending, self._tracer
            )
            await self._transactions.start()

    def _end(self) -> None:
        if not self._instance.is_in_loop:
            self._pending.wait(self._config.timeout_ms / 1000)
        for part in (self._transactions, self._tracer):
            if part is not None:
                stopping = self._instance.submit(part.stop())
                if not self._instance.is_in_loop:
                    stopping.result()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, and return where it is stored.

        queue: The queue for the message; by default, the message and the settings decide.
        selector: Chooses the queue by `argument`. The event loop calls it: it must not block.
        timeout_ms: For all attempts together; None for the producer's.

        With a queue, a selector or a sharding key, a failed send is not repeated.
        """
        target = _target(queue, selector, argument)
        return wait_for(self._submit([message], target, timeout_ms, "SYNC"))[0]

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout_ms: int | None = None,
    ) -> "Future[SendResult]":
        """Send a message, and return a future of its result; see `send`.

        Callbacks of the future are called by the event loop and must not block.
        """
        target = _target(queue, selector, argument)
        sent = self._submit([message], target, timeout_ms, "ASYNC")
        return chained(sent, lambda results: results[0])

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> None:
        """Send a message without waiting for it; an error is only logged."""
        sent = self._submit([message], _target(queue, selector, argument), None, "ONEWAY")
        sent.add_done_callback(_log_error)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages to one queue, all or none; return their results in order.

        They have one topic, no delays, and at most `max_message_bytes` together: see `split_batch`.
        Raises MessageError: BATCH_EMPTY, BATCH_DIFFERS, BATCH_DELAYED, BATCH_TOPIC,
        BATCH_TOO_LARGE.
        """
        check_batch(messages, self._config.max_message_bytes)
        return wait_for(self._submit(messages, _target(queue), timeout_ms, "SYNC"))

    def send_in_transaction(
        self, message: Message, argument: Any = None, *, immunity_s: int | None = None
    ) -> TransactionSendResult:
        """Store a half message, execute its local transaction, and commit it or roll it back.

        The listener is called in this thread. If it raises an exception or returns None, or if the
        decision is lost, a producer of the group is asked later. If the half message may not be
        durable (its status is not SEND_OK), the listener is not called, and the message is rolled
        back. Source: `DefaultMQProducerImpl.sendMessageInTransaction`.

        argument: Passed to the listener.
        immunity_s: Time in which the group is not asked about the message.

        Raises InvalidInputError (TRANSACTION_LISTENER) if the producer has no listener.
        """
        self._check_started()
        if self._transactions is None:
            raise InvalidInputError(
                "the producer has no listener for transactions.",
                remedy="Create it with `listener`.",
                code="TRANSACTION_LISTENER",
            )
        sent = self._outgoing([message])[0]
        context = SendContext(self._config.group, [message], "TRANSACTION")
        self._call_hooks("before_send", context)
        undecided, began_ms = None, system_clock()
        with self._pending.counted():
            try:
                undecided = self._transactions.send_half(sent, immunity_s)
            except BaseException as error:
                context.error = error
                raise
            finally:
                if self._tracer is not None:
                    self._tracer.half_sent(sent, began_ms, undecided)
                self._call_hooks("after_send", context)
            return self._transactions.decide(undecided, argument)

    def _outgoing(self, messages: Sequence[Message]) -> list[OutgoingMessage]:
        self._check_started()
        for message in messages:
            check_outgoing(message, self._config.max_message_bytes)
        now = system_clock()
        return [outgoing(message, self._ids.one(), now) for message in messages]

    def _submit(
        self, messages: Sequence[Message], target: SendTarget, timeout_ms: int | None, mode: str
    ) -> "Future[list[SendResult]]":
        """Start a send; the hooks are called before the future has its result."""
        if timeout_ms is None:
            timeout_ms = self._config.timeout_ms
        check_whole("timeout_ms", timeout_ms, 1, LONGEST_MS)
        sent = self._outgoing(messages)
        if mode == "SYNC":
            self._instance.check_may_wait()
        context = SendContext(self._config.group, messages, mode)
        self._call_hooks("before_send", context)
        self._pending.add(0 if self._instance.is_in_loop else timeout_ms / 1000)
        try:
            future = self._instance.submit(self._sending.send(sent, target, timeout_ms=timeout_ms))
        except BaseException as error:
            self._pending.remove()
            context.error = error
            self._call_hooks("after_send", context)
            raise
        future.add_done_callback(lambda done: self._pending.remove())
        return chained(future, lambda results: results, partial(self._after, context, sent))

    def _after(
        self,
        context: SendContext,
        sent: Sequence[OutgoingMessage],
        results: Sequence[SendResult],
        error: BaseException | None,
    ) -> None:
        if self._tracer is not None:
            self._tracer.sent(sent, sent[0].born_timestamp, results)
        context.results, context.error = results, error
        self._call_hooks("after_send", context)

    def _call_hooks(self, name: str, context: SendContext) -> None:
        for hook in self._hooks:
            self._failures.call_back(name, getattr(hook, name), context)


def _target(
    queue: MessageQueue | None, selector: Selector | None = None, argument: Any = None
) -> SendTarget:
    """Return the target of a send. Raises InvalidInputError (WRONG_TYPE, QUEUE_AND_SELECTOR)."""
    if queue is None and selector is None:
        return ANYWHERE
    if queue is not None and selector is not None:
        raise InvalidInputError(
            "queue and selector are both given.", remedy="Give one.", code="QUEUE_AND_SELECTOR"
        )
    if queue is not None:
        check_type(MessageQueue, "Use one of the topic's queues.", queue=queue)
    elif not callable(selector):
        check_type((), "Use a function, such as `by_hash`.", selector=selector)
    return SendTarget(queue, selector, argument)


def _log_error(done: "Future[list[SendResult]]") -> None:
    error = done.exception()
    if error is not None:
        _log.warning("a one-way send failed: %s", error)
