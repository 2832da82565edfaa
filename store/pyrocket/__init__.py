"""RocketMQ's store in Python: topics on disk, without a server and without a jar.

The packages, from the bottom up; each imports only from packages above it in this list:

base       clocks, settings, checks of arguments, threads, versions
values     what the other packages pass to each other: messages, offsets, settings, plans
formats    bytes to values and Arrow columns, and back: one module for each format on disk
disk       files, names, locks, and the state that processes share; knows no format
filters    tag expressions and SQL conditions
log        the CommitLog, the source of truth: append, flush, find its end
index      what can be rebuilt from the log: `queues` (ConsumeQueue) and `keys` (IndexFile)
metadata   topics, groups, identity, epochs, cursors: RocketMQ's and pyrocket's files
engine     readers and writers: append, scan, look up, recover, clean up
services   what RocketMQ offers on top: `delay`, `transactions`, and the exactly-once `sink`
views      the log, retries, groups, topics and pending messages as Arrow
broker     a store that serves other machines, independent of the protocol
wire       the gRPC protocol, for both sides
server     brokers and name servers over gRPC
remote     reads, writes and administers a store through its broker
remoting   reads from and writes to brokers of Apache RocketMQ
client     producers, and consumers that share the queues of a topic
tools      verify, repair, notebook, command line and pytest plugin, built on `Store`

The other modules are `store` (the class `Store`), `errors`, and `testing` for tests of programs
that use a store.
"""

from pyrocket.base import lazy_names
from pyrocket.base.versions import RELEASE

__getattr__, __dir__, __all__ = lazy_names(__name__)
__version__ = RELEASE
