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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrocket.base.arguments import local_path as local_path
    from pyrocket.base.arguments import parse_size as parse_size
    from pyrocket.base.config import Retention as Retention
    from pyrocket.base.config import StoreConfig as StoreConfig
    from pyrocket.base.config import parse_duration as parse_duration
    from pyrocket.broker.source import StoreSource as StoreSource
    from pyrocket.engine.parts.group_admin import Groups as Groups
    from pyrocket.errors import PyrocketError as PyrocketError
    from pyrocket.filters.message_filter import MessageFilter as MessageFilter
    from pyrocket.filters.message_filter import ScanTally as ScanTally
    from pyrocket.formats.half_message import HalfMessage as HalfMessage
    from pyrocket.formats.properties import KEY_ENCODING_PROPERTY as KEY_ENCODING_PROPERTY
    from pyrocket.formats.properties import NULL_BODY_PROPERTY as NULL_BODY_PROPERTY
    from pyrocket.formats.record_columns import SCAN_COLUMNS as SCAN_COLUMNS
    from pyrocket.formats.record_slice import RecordSlice as RecordSlice
    from pyrocket.formats.record_slice import decode_slices as decode_slices
    from pyrocket.formats.send_columns import SEND_COLUMNS as SEND_COLUMNS
    from pyrocket.formats.send_columns import check_send_schema as check_send_schema
    from pyrocket.metadata.groups import check_group_name as check_group_name
    from pyrocket.metadata.topics import check_topic_name as check_topic_name
    from pyrocket.metadata.topics import is_system_topic as is_system_topic
    from pyrocket.remote.admin import RemoteAdmin as RemoteAdmin
    from pyrocket.remote.client import Client as Client
    from pyrocket.remote.client import Timeouts as Timeouts
    from pyrocket.remote.connection import Connection as Connection
    from pyrocket.remote.lookup import RouteLookup as RouteLookup
    from pyrocket.remote.lookup import is_broker as is_broker
    from pyrocket.remote.lookup import live_brokers as live_brokers
    from pyrocket.remote.sink import RemoteSink as RemoteSink
    from pyrocket.remote.source import RemoteSource as RemoteSource
    from pyrocket.remote.version_watch import VersionWatch as VersionWatch
    from pyrocket.services.sink.batch import SinkBatch as SinkBatch
    from pyrocket.services.sink.sink import Sink as Sink
    from pyrocket.services.sink.staging import Stager as Stager
    from pyrocket.services.transactions.transactions import Transactions as Transactions
    from pyrocket.store import Store as Store
    from pyrocket.values.admin import AtTime as AtTime
    from pyrocket.values.admin import GroupConfig as GroupConfig
    from pyrocket.values.lookup import LookupRequest as LookupRequest
    from pyrocket.values.lookup import LookupResult as LookupResult
    from pyrocket.values.lookup import MessageLocations as MessageLocations
    from pyrocket.values.message import AppendResult as AppendResult
    from pyrocket.values.message import ByteSpan as ByteSpan
    from pyrocket.values.message import LogMark as LogMark
    from pyrocket.values.message import Message as Message
    from pyrocket.values.message import MessageQueue as MessageQueue
    from pyrocket.values.message import Position as Position
    from pyrocket.values.message import QueueOffsets as QueueOffsets
    from pyrocket.values.message import QueueRange as QueueRange
    from pyrocket.values.message import SendResult as SendResult
    from pyrocket.values.message import SourceIdentity as SourceIdentity
    from pyrocket.values.message import StoredMessage as StoredMessage
    from pyrocket.values.sink import Published as Published
    from pyrocket.values.sink import Staged as Staged
    from pyrocket.values.source import BrokerCalls as BrokerCalls
    from pyrocket.values.source import PendingRange as PendingRange
    from pyrocket.values.source import ReadPlan as ReadPlan
    from pyrocket.values.source import SourceCalls as SourceCalls
    from pyrocket.values.source import ViewName as ViewName
    from pyrocket.values.source import ViewPart as ViewPart
    from pyrocket.values.topics import TopicConfig as TopicConfig
    from pyrocket.values.transactions import HalfMessageRef as HalfMessageRef
    from pyrocket.values.transactions import LocalTransactionState as LocalTransactionState
    from pyrocket.values.transactions import TransactionListener as TransactionListener
    from pyrocket.values.transactions import TransactionSendResult as TransactionSendResult
    from pyrocket.views.parts import VIEW_COLUMNS as VIEW_COLUMNS
    from pyrocket.views.pending import PENDING_COLUMNS as PENDING_COLUMNS
    from pyrocket.views.views import Views as Views
    from pyrocket.wire.channel import Credentials as Credentials
    from pyrocket.wire.channel import read_credentials as read_credentials

_NAMES = {
    "base.arguments": "local_path parse_size",
    "base.config": "Retention StoreConfig parse_duration",
    "broker.source": "StoreSource",
    "engine.parts.group_admin": "Groups",
    "errors": "PyrocketError",
    "filters.message_filter": "MessageFilter ScanTally",
    "formats.half_message": "HalfMessage",
    "formats.properties": "KEY_ENCODING_PROPERTY NULL_BODY_PROPERTY",
    "formats.record_columns": "SCAN_COLUMNS",
    "formats.record_slice": "RecordSlice decode_slices",
    "formats.send_columns": "SEND_COLUMNS check_send_schema",
    "metadata.groups": "check_group_name",
    "metadata.topics": "check_topic_name is_system_topic",
    "remote.admin": "RemoteAdmin",
    "remote.client": "Client Timeouts",
    "remote.connection": "Connection",
    "remote.lookup": "RouteLookup is_broker live_brokers",
    "remote.sink": "RemoteSink",
    "remote.source": "RemoteSource",
    "remote.version_watch": "VersionWatch",
    "services.sink.batch": "SinkBatch",
    "services.sink.sink": "Sink",
    "services.sink.staging": "Stager",
    "services.transactions.transactions": "Transactions",
    "store": "Store",
    "values.admin": "AtTime GroupConfig",
    "values.lookup": "LookupRequest LookupResult MessageLocations",
    "values.message": "AppendResult ByteSpan LogMark Message MessageQueue Position QueueOffsets"
    " QueueRange SendResult SourceIdentity StoredMessage",
    "values.sink": "Published Staged",
    "values.source": "BrokerCalls PendingRange ReadPlan SourceCalls ViewName ViewPart",
    "values.topics": "TopicConfig",
    "values.transactions": "HalfMessageRef LocalTransactionState TransactionListener"
    " TransactionSendResult",
    "views.parts": "VIEW_COLUMNS",
    "views.pending": "PENDING_COLUMNS",
    "views.views": "Views",
    "wire.channel": "Credentials read_credentials",
}
"""The public names by the module that defines them, from which they are imported on first use."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, which keeps `import pyrocket` fast."""
    if name == "__version__":
        return importlib.import_module("pyrocket.base.versions").RELEASE
    if name not in _HOMES:
        raise AttributeError(f"module 'pyrocket' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyrocket.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return all names, including public names that are not imported yet."""
    return sorted({*globals(), *__all__, "__version__"})
