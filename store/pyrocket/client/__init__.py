"""Producers, and consumers of groups that share the queues of a topic.

    from pyrocket.client import ConsumeResult, Producer, PullConsumer, PushConsumer

They use brokers at an `endpoint`, or a store at a `path` of this machine.

producer         sends messages
push_consumer    calls a listener with the messages of a group's queues
pull_consumer    polls the messages of queues that its caller assigns
results          what a listener returns for a batch of messages
consumer_config  the settings of a consumer, and their bounds
producer_config  the settings of a producer
allocation       how the members of a group share the queues
consume_from     at which offset a consumer starts, and how it continues after an invalid one
selection        which queue a message is sent to
group_lag        how far a group is behind
advice           how many threads, processes and nodes a group needs
deduplication    wraps a listener so that each key is consumed once
send_hooks       functions that are called before and after each send

The other modules, from the top down:

base             the start and the end of every client, and its state
server           brokers at an endpoint, or a store at a path
instance         the event loop and connections that the clients of a process share
local_offsets    the offsets of broadcasting consumers, in files
local_transactions  executes transactions, and answers checks
outgoing         the messages of a producer: checks, compression, batches
tracing          writes the message trace of a client
core             the state of a client in one event loop, without threads, sockets or clock
transport        the calls to brokers that producers and consumers make
embedded         makes the calls to a store in the same process
remote           makes the calls to brokers
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrocket.client.advice import Advice as Advice
    from pyrocket.client.advice import advise as advise
    from pyrocket.client.allocation import Strategy as Strategy
    from pyrocket.client.allocation import averagely as averagely
    from pyrocket.client.allocation import by_circle as by_circle
    from pyrocket.client.allocation import by_config as by_config
    from pyrocket.client.allocation import by_consistent_hash as by_consistent_hash
    from pyrocket.client.allocation import by_machine_room as by_machine_room
    from pyrocket.client.allocation import machine_room_nearby as machine_room_nearby
    from pyrocket.client.base import ClientState as ClientState
    from pyrocket.client.consume_from import ConsumeFrom as ConsumeFrom
    from pyrocket.client.consumer_config import ConsumerConfig as ConsumerConfig
    from pyrocket.client.core.listening import Stats as Stats
    from pyrocket.client.deduplication.listener import Deduplicated as Deduplicated
    from pyrocket.client.deduplication.sqlite import SqliteMarks as SqliteMarks
    from pyrocket.client.deduplication.transaction import TransactionMarks as TransactionMarks
    from pyrocket.client.group_lag import lag as lag
    from pyrocket.client.outgoing import split_batch as split_batch
    from pyrocket.client.producer import Producer as Producer
    from pyrocket.client.producer_config import ProducerConfig as ProducerConfig
    from pyrocket.client.pull_consumer import PullConsumer as PullConsumer
    from pyrocket.client.push_consumer import PushConsumer as PushConsumer
    from pyrocket.client.results import ConsumeResult as ConsumeResult
    from pyrocket.client.results import ConsumeStatus as ConsumeStatus
    from pyrocket.client.selection import Selector as Selector
    from pyrocket.client.selection import by_hash as by_hash
    from pyrocket.client.selection import by_random as by_random
    from pyrocket.client.selection import in_rooms as in_rooms
    from pyrocket.client.send_hooks import SendContext as SendContext
    from pyrocket.client.send_hooks import SendHook as SendHook
    from pyrocket.values.admin import GroupLag as GroupLag
    from pyrocket.values.consuming import Committed as Committed
    from pyrocket.values.consuming import MessageModel as MessageModel
    from pyrocket.values.consuming import Pulled as Pulled
    from pyrocket.values.consuming import PullStatus as PullStatus
    from pyrocket.values.consuming import Subscription as Subscription

_NAMES = {
    "client.advice": "Advice advise",
    "client.allocation": "Strategy averagely by_circle by_config by_consistent_hash"
    " by_machine_room machine_room_nearby",
    "client.base": "ClientState",
    "client.consume_from": "ConsumeFrom",
    "client.consumer_config": "ConsumerConfig",
    "client.core.listening": "Stats",
    "client.deduplication.listener": "Deduplicated",
    "client.deduplication.sqlite": "SqliteMarks",
    "client.deduplication.transaction": "TransactionMarks",
    "client.group_lag": "lag",
    "client.outgoing": "split_batch",
    "client.producer": "Producer",
    "client.producer_config": "ProducerConfig",
    "client.pull_consumer": "PullConsumer",
    "client.push_consumer": "PushConsumer",
    "client.results": "ConsumeResult ConsumeStatus",
    "client.selection": "Selector by_hash by_random in_rooms",
    "client.send_hooks": "SendContext SendHook",
    "values.admin": "GroupLag",
    "values.consuming": "Committed MessageModel PullStatus Pulled Subscription",
}
"""The public names by the module that defines them, from which they are imported on first use."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: clients of brokers need no store."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pyrocket.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyrocket.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return all names, including public names that are not imported yet."""
    return sorted({*globals(), *__all__})
