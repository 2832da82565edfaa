"""EndTransaction."""

from typing import Any

from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, stored_status
from pyrocket.server.messaging.interface import name_of, new
from pyrocket.values.message import SendStatus
from pyrocket.values.transactions import LocalTransactionState

_STATES = {"COMMIT": LocalTransactionState.COMMIT, "ROLLBACK": LocalTransactionState.ROLLBACK}


def end_transaction(broker: Broker, request: Any, caller: Caller) -> PendingReply:
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
    stored = broker.transactions.end(topic, transaction_id, state)
    if broker.traces is not None:
        from_check = name_of("TransactionSource", request.source) == "SOURCE_SERVER_CHECK"
        broker.traces.transaction_ended(
            caller.host, topic, transaction_id, state, from_check=from_check
        )

    def reply(status: SendStatus) -> Any:
        both = status if stored is SendStatus.SEND_OK else stored
        return new("EndTransactionResponse", status=stored_status(both))

    return PendingReply(broker.confirmations.status(), reply)
