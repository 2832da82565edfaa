"""Producers, and consumers of groups that share the queues of a topic.

    from pyrocket.client import ConsumeResult, Producer, PullConsumer, PushConsumer

They use brokers at an `endpoint`, or a store at a `path` of this machine.

producer         sends messages
push_consumer    calls a listener with the messages of a group's queues
pull_consumer    polls the messages of queues that its caller assigns
results          what a listener returns for a batch of messages
config           the settings of consumers and producers, and their bounds
allocation       how the members of a group share the queues
consume_from     at which offset a consumer starts
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

from pyrocket.base import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
