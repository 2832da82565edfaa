"""Which failed sends are repeated, for every code of an error."""

import re
from functools import cache
from random import Random

import pytest
import surface
from pyrocket import errors
from pyrocket.client.config import ProducerConfig
from pyrocket.client.core.routes import Routes
from pyrocket.client.core.sending import Sending, SendTarget
from pyrocket.client.outgoing import outgoing
from pyrocket.client.transport import TopicRoute
from pyrocket.errors import FailedSend, PyrocketError, TransportError
from pyrocket.values.message import Message, MessageQueue, SendResult
from support.simulated_loop import run_simulated

STORED = {
    *("QUEUES_NOT_WRITTEN", "FLUSH_DISK_TIMEOUT"),
    *("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"),
}

STALE_ROUTE = {"QUEUE_NOT_FOUND", "TOPIC_CHANGED", "TOPIC_NOT_FOUND", "TOPIC_NOT_WRITABLE"}

UNKNOWN = {
    # Brokers that fail, are busy, or do not answer.
    *("PYROCKET_ERROR", "BROKER_FAILED", "STORE_UNAVAILABLE", "TOO_MANY_REQUESTS"),
    *("TRANSPORT_FAILED", "SEND_TIMEOUT", "APPEND_INTERRUPTED", "LOCK_TIMEOUT", "STORE_IN_USE"),
    *("DISK_FULL", "WRITE_FAILED", "READ_FAILED", "STORE_FAILED", "STORE_REPLACED"),
    *("STORE_READ_ONLY", "STORE_NOT_SHARED", "STORE_RECOVERING", "STORE_NEEDS_RECOVERY"),
    # Damaged stores.
    *("STORE_DAMAGED", "LOG_DAMAGED", "QUEUE_GAP", "KEY_INDEX_DAMAGED", "TIMERS_DAMAGED"),
    *("STORE_FILE_KIND", "STORE_FILE_LENGTH", "STORE_FILE_MISSING", "STORE_FILE_SIZE"),
    "STORE_FILE_FULL",
    *("STORE_FOREIGN_FILE", "STORE_LINKED", "STORE_SIZES", "CLOCK_DAMAGED"),
    # Errors of other operations.
    *("BROKER_NAME_TAKEN", "CLIENT_CLOSED", "CLIENT_FORKED", "DEDUPLICATION_FAILED"),
    *("DEDUPLICATION_ROLLED_BACK", "GROUP_IN_USE", "QUERY_RUNNING", "SNAPSHOT_DISTURBED"),
    *("GROUP_STARTS_FULL", "MEMBERS_FULL", "STAGING_FULL", "TOO_MANY_SENDS", "VERIFY_DISTURBED"),
    *("PULL_STALLED", "NOT_A_REPLICA", "REPLICA_READ_ONLY", "REPLICA_RECORD"),
    "REPLICA_UNAVAILABLE",
}


@cache
def all_errors():
    """Return an error of every code and class that the product uses, as `surface` lists them."""
    errors_of_codes = []
    listed = (surface.GOLDEN / "codes.txt").read_text().split("\n\n")[0]
    for code, kinds in re.findall(r"^(\w+): (.+)$", listed, re.MULTILINE):
        for kind in sorted(one.removesuffix(surface.DEFAULT) for one in kinds.split(", ")):
            error = getattr(errors, kind, None)
            if error is not None:
                safe = {"repeat_is_safe": False} if issubclass(error, TransportError) else {}
                errors_of_codes.append(error("failed", code=code, **safe))
    return errors_of_codes


class Brokers:
    """Two brokers; the first send fails."""

    def __init__(self, error):
        self.error, self.sent, self.routed = error, [], 0
        self.queues = [MessageQueue("orders", name, 0) for name in "ab"]

    async def route(self, topic):
        self.routed += 1
        return TopicRoute(self.queues, self.queues)

    async def send(self, queue, messages):
        self.sent.append(queue.broker)
        if len(self.sent) == 1:
            raise self.error
        return [SendResult("orders", 0, 0, 0, one.unique_id, "") for one in messages]


def sent(error, target=None, **fields):
    """Send a message; return the attempts, the number of requested routes, and the error."""
    brokers = Brokers(error)

    async def send():
        sending = Sending(ProducerConfig(), brokers, Routes(brokers), Random(1))
        message = outgoing(Message(topic="orders", body=b"1", **fields), "ID", 0)
        await sending.send([message], target or SendTarget())

    try:
        run_simulated(send())
    except PyrocketError as raised:
        return brokers.sent, brokers.routed, raised
    return brokers.sent, brokers.routed, None


def test_every_code_has_been_considered():
    assert {*STORED, *STALE_ROUTE, *UNKNOWN} <= {error.code for error in all_errors()}


def test_a_failed_send_is_repeated_only_if_it_can_succeed_and_is_not_known_to_be_stored():
    for error in all_errors():
        attempts, routed, raised = sent(error)
        if error.code in STALE_ROUTE:
            assert (len(attempts), routed, raised) == (2, 2, None), error.code
        elif error.code in UNKNOWN:
            assert (len({*attempts}), raised) == (2, None), error.code
        else:
            assert (len(attempts), raised) == (1, error)
            assert (error.failed_send is FailedSend.STORED) == (error.code in STORED), error.code


@pytest.mark.parametrize(
    "options", [{"sharding_key": "k"}, {"target": SendTarget(queue=MessageQueue("orders", "a", 0))}]
)
def test_a_send_to_a_queue_of_its_own_is_repeated_for_no_code(options):
    for error in all_errors():
        if error.code in {*STORED, *UNKNOWN}:
            attempts, _, raised = sent(error, **options)
            assert (len(attempts), raised) == (1, error)
