"""Ends the transactions of clients, and checks half messages that remain undecided.

Check requests are sent over a connection that the producer keeps open. The number of pending
requests is limited; further requests are sent when it has read some. Sends therefore never wait for
checks.
"""

import threading
from collections.abc import Collection
from functools import partial
from typing import Protocol

from pyrocket.base.rounds import Rounds
from pyrocket.errors import TransactionError
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.services.transactions.check_service import CheckTarget
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.store import Store
from pyrocket.values.message import SendStatus
from pyrocket.values.transactions import CheckPolicy, LocalTransactionState

MAX_QUESTIONS = 2000
"""Maximum pending check requests, as in RocketMQ's broker."""

_POLL_S = 0.1


class Producers(Protocol):
    """The connections of producers."""

    def topics(self) -> Collection[str]:
        """Return the topics that connected producers send to."""

    def room(self, topic: str) -> int:
        """Return the number of further check requests that the producers of a topic accept."""

    def ask(self, topic: str, request: CheckRequest) -> bool:
        """Send a check request to a producer of the topic; return False if none accepts it."""


class BrokerTransactions:
    """Ends transactions, and sends check requests in a thread. Safe to share between threads."""

    def __init__(self, store: Store, policy: CheckPolicy) -> None:
        self._store = store
        self._transactions = store.transactions
        self._transactions.set_policy(policy)
        self._closed, self.rounds = threading.Event(), Rounds()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive, or has not been started yet."""
        return self._thread is None or self._thread.is_alive()

    def ask_through(self, producers: Producers | None = None) -> None:
        """Start the thread that checks undecided messages, unless it runs.

        producers: Connected producers, in addition to those that `ClientCalls.watch` adds.
        """
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(producers,), name="pyrocket-checks", daemon=True
                )
                self._thread.start()

    def end(
        self, topic: str, transaction_id: str, state: LocalTransactionState, group: str = ""
    ) -> SendStatus:
        """Commit or roll back; repeating the same decision changes nothing.

        group: The producer group; RocketMQ's proxy and its clients use the topic as the group.

        Raises TransactionError: TRANSACTION_NOT_FOUND, or TRANSACTION_ENDED if the transaction had
        the opposite outcome.
        """
        try:
            return self._transactions.end_by_id(group or topic, transaction_id, state, topic)
        except TransactionError as error:
            if error.code != "TRANSACTION_NOT_FOUND" or not self._has_ended(topic, transaction_id):
                raise
        committed = bool(self._store.lookup.query(topic, transaction_id))
        if committed != (state is LocalTransactionState.COMMIT):
            raise TransactionError(
                f"the transaction {transaction_id} was already"
                f" {'committed' if committed else 'rolled back or discarded'}.",
                remedy="Nothing was changed.",
                code="TRANSACTION_ENDED",
            )
        return SendStatus.SEND_OK

    def _has_ended(self, topic: str, transaction_id: str) -> bool:
        halves = self._store.lookup.query(HALF_TOPIC, transaction_id)
        return any(half.properties.get("REAL_TOPIC") == topic for half in halves)

    def close(self) -> None:
        """Stop the checks."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, producers: Producers | None) -> None:
        targets: dict[str, CheckTarget] = {}
        while not self._closed.wait(_POLL_S):
            self.rounds.run(
                "checking transactions failed and will be retried",
                lambda: self._check(targets, producers),
            )

    def _check(self, targets: dict[str, CheckTarget], producers: Producers | None) -> None:
        """Run a round of checks if one is due."""
        if producers is not None:
            self._register(targets, producers)
        self._transactions.run_checks()

    def _register(self, targets: dict[str, CheckTarget], producers: Producers) -> None:
        """Add topics with connected producers to the check service; remove all other topics."""
        topics = {*producers.topics()}
        for topic in topics - targets.keys():
            targets[topic] = CheckTarget(
                topic, partial(_room, producers, topic), partial(producers.ask, topic)
            )
            self._transactions.add(targets[topic])
        for topic in targets.keys() - topics:
            self._transactions.remove(targets.pop(topic))


def _room(producers: Producers, topic: str) -> int:
    return min(producers.room(topic), MAX_QUESTIONS)
