"""EndTransaction, and check requests to producers about undecided half messages."""

from collections.abc import Collection
from typing import Any

from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.broker.half_checks import BrokerTransactions
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, stored_status
from pyrocket.server.messaging.delivered import message_of
from pyrocket.server.messaging.interface import name_of, new
from pyrocket.server.messaging.sessions import Sessions
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.values.message import SendStatus
from pyrocket.values.transactions import LocalTransactionState

_STATES = {"COMMIT": LocalTransactionState.COMMIT, "ROLLBACK": LocalTransactionState.ROLLBACK}


class TransactionCalls:
    """Implements the call."""

    def __init__(self, broker: Broker) -> None:
        self._transactions: BrokerTransactions = broker.transactions
        self._traces, self._confirm = broker.traces, broker.confirmations.status

    def end_transaction(self, request: Any, caller: Caller) -> PendingReply:
        """Commit or roll back; any other resolution leaves the message undecided.

        The transaction id is the message id. Unlike in RocketMQ, a decision is also accepted after
        checks have begun.
        """
        topic = caller.topic(request.topic)
        caller.admit("EndTransaction", [topic])
        transaction_id = request.transaction_id.strip()
        if not transaction_id:
            raise RefusedError("INVALID_TRANSACTION_ID", "the transaction id is blank.")
        resolution = name_of("TransactionResolution", request.resolution)
        state = _STATES.get(resolution, LocalTransactionState.UNKNOWN)
        stored = self._transactions.end(topic, transaction_id, state)
        if self._traces is not None:
            from_check = name_of("TransactionSource", request.source) == "SOURCE_SERVER_CHECK"
            self._traces.transaction_ended(
                caller.host, topic, transaction_id, state, from_check=from_check
            )

        def reply(status: SendStatus) -> Any:
            both = status if stored is SendStatus.SEND_OK else stored
            return new("EndTransactionResponse", status=stored_status(both))

        return PendingReply(self._confirm(), reply)


class AskedProducers:
    """The connected producers, to which `BrokerTransactions` sends check requests."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def topics(self) -> Collection[str]:
        """Return the topics that connected producers send to."""
        return self._sessions.topics()

    def room(self, topic: str) -> int:
        """Return the number of further check requests that the producers of a topic accept."""
        return sum(max(stream.room, 0) for stream in self._sessions.producers(topic))

    def ask(self, topic: str, request: CheckRequest) -> bool:
        """Send a check request to a producer of the topic; return False if none accepts it."""
        command = new(
            "RecoverOrphanedTransactionCommand",
            message=message_of(request.message, new("Resource", name=topic)),
            transaction_id=request.half.transaction_id,
        )
        sent = new("TelemetryCommand", recover_orphaned_transaction_command=command)
        streams = sorted(self._sessions.producers(topic), key=lambda stream: -stream.room)
        return any(stream.offer(sent) for stream in streams)
