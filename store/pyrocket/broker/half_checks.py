"""Transactions of clients: their decisions, and the checks of messages that stay undecided.

A producer is asked through the connection that it keeps open. The questions of a round wait in a
bounded number; what has no room is asked in a later round, so sends never wait for checks.
"""

import threading
from collections.abc import Collection
from typing import Protocol

from pyrocket.broker.rounds import Rounds
from pyrocket.errors import TransactionError
from pyrocket.formats.half_message import HalfMessage
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.message import SendStatus
from pyrocket.services.transactions.model import (
    CheckPolicy,
    CheckRequest,
    LocalTransactionState,
)
from pyrocket.store import Store

MAX_QUESTIONS = 2000
"""That wait for producers, as in RocketMQ's broker."""

_POLL_S = 0.1


class Producers(Protocol):
    """The connections of producers."""

    def topics(self) -> Collection[str]:
        """Return the topics that connected producers send to."""
        ...

    def room(self, topic: str) -> int:
        """Return how many more questions the producers of a topic accept."""
        ...

    def ask(self, topic: str, request: CheckRequest) -> None:
        """Ask a producer of the topic about a half message."""
        ...


class _Target:
    """The producers of one topic, as the check service sees them."""

    def __init__(self, topic: str, producers: Producers) -> None:
        self.group, self._producers = topic, producers

    def room(self) -> int:
        return min(self._producers.room(self.group), MAX_QUESTIONS)

    def is_asked(self, half: HalfMessage) -> bool:
        """Return False: an unanswered question is repeated after the interval."""
        return False

    def ask(self, request: CheckRequest) -> None:
        self._producers.ask(self.group, request)

    def close(self) -> None:
        """Do nothing: the connections have an owner."""


class BrokerTransactions:
    """Ends transactions, and has producers asked in a thread. Safe to share between threads."""

    def __init__(self, store: Store, policy: CheckPolicy) -> None:
        self._store = store
        self._transactions = store.transactions
        self._transactions.set_policy(policy)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread that checks is alive, or not needed yet."""
        return self._thread is None or self._thread.is_alive()

    def ask_through(self, producers: Producers) -> None:
        """Begin to ask producers about undecided messages."""
        self._thread = threading.Thread(
            target=self._run, args=(producers,), name="pyrocket-checks", daemon=True
        )
        self._thread.start()

    def end(self, topic: str, transaction_id: str, state: LocalTransactionState) -> SendStatus:
        """Commit or roll back; a repeat of the same decision changes nothing.

        Raises TransactionError (TRANSACTION_NOT_FOUND, TRANSACTION_ENDED if the transaction has
        ended otherwise).
        """
        try:
            return self._transactions.end_by_id(topic, transaction_id, state)
        except TransactionError as error:
            if error.code != "TRANSACTION_NOT_FOUND" or not self._has_ended(topic, transaction_id):
                raise
        committed = bool(self._store.lookup.query(topic, transaction_id))
        if committed != (state is LocalTransactionState.COMMIT):
            raise TransactionError(
                f"the transaction {transaction_id} was"
                f" {'committed' if committed else 'rolled back or discarded'} before.",
                remedy="Nothing was changed.",
                code="TRANSACTION_ENDED",
            )
        return SendStatus.SEND_OK

    def _has_ended(self, topic: str, transaction_id: str) -> bool:
        halves = self._store.lookup.query(HALF_TOPIC, transaction_id)
        return any(half.properties.get("REAL_TOPIC") == topic for half in halves)

    def close(self) -> None:
        """Stop asking."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, producers: Producers) -> None:
        targets: dict[str, _Target] = {}
        rounds = Rounds()
        while not self._closed.wait(_POLL_S):
            rounds.run(
                "checking transactions failed, and is tried again",
                lambda: self._check(targets, producers),
            )

    def _check(self, targets: dict[str, _Target], producers: Producers) -> None:
        """Run a round of checks if one is due."""
        self._register(targets, producers)
        self._transactions.run_checks()

    def _register(self, targets: dict[str, _Target], producers: Producers) -> None:
        """Have the check service know exactly the topics with producers."""
        topics = {*producers.topics()}
        for topic in topics - targets.keys():
            targets[topic] = _Target(topic, producers)
            self._transactions.add(targets[topic])
        for topic in targets.keys() - topics:
            self._transactions.remove(targets.pop(topic))
