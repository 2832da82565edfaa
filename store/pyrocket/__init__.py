"""RocketMQ's store in Python: topics on disk, without a server and without a jar.

The packages, from the bottom up; each imports only from packages above it in this list:

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
nameserver the routes of topics to brokers, without network or disk
rpc        the broker over gRPC, and its clients
client     producers, and consumers that share the queues of a topic
tools      verify, repair, notebook, command line and pytest plugin, built on `Store`

The other modules are `store` (the class `Store`), `message`, `consuming`, `producing`, `config`,
`arguments`, `clock`, `loop_threads`, `versions`, `errors`, and `testing` for tests of programs that
use a store.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrocket.arguments import local_path as local_path
    from pyrocket.arguments import parse_size as parse_size
    from pyrocket.broker.interface import BrokerCalls as BrokerCalls
    from pyrocket.broker.interface import SourceCalls as SourceCalls
    from pyrocket.broker.source import ReadPlan as ReadPlan
    from pyrocket.broker.source import StoreSource as StoreSource
    from pyrocket.config import Retention as Retention
    from pyrocket.config import StoreConfig as StoreConfig
    from pyrocket.config import parse_duration as parse_duration
    from pyrocket.engine.group_admin import AtTime as AtTime
    from pyrocket.engine.group_admin import Groups as Groups
    from pyrocket.engine.key_lookup import LookupRequest as LookupRequest
    from pyrocket.engine.key_lookup import LookupResult as LookupResult
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
    from pyrocket.index.queues.message_locations import MessageLocations as MessageLocations
    from pyrocket.message import AppendResult as AppendResult
    from pyrocket.message import ByteSpan as ByteSpan
    from pyrocket.message import LogMark as LogMark
    from pyrocket.message import Message as Message
    from pyrocket.message import MessageQueue as MessageQueue
    from pyrocket.message import Position as Position
    from pyrocket.message import QueueOffsets as QueueOffsets
    from pyrocket.message import QueueRange as QueueRange
    from pyrocket.message import SendResult as SendResult
    from pyrocket.message import SourceIdentity as SourceIdentity
    from pyrocket.message import StoredMessage as StoredMessage
    from pyrocket.metadata.groups import GroupConfig as GroupConfig
    from pyrocket.metadata.groups import check_group_name as check_group_name
    from pyrocket.metadata.topics import TopicConfig as TopicConfig
    from pyrocket.metadata.topics import check_topic_name as check_topic_name
    from pyrocket.metadata.topics import is_system_topic as is_system_topic
    from pyrocket.rpc.client import Client as Client
    from pyrocket.rpc.client import Timeouts as Timeouts
    from pyrocket.rpc.connection import Connection as Connection
    from pyrocket.rpc.connection import Credentials as Credentials
    from pyrocket.rpc.connection import read_credentials as read_credentials
    from pyrocket.rpc.nameserver.lookup import RouteLookup as RouteLookup
    from pyrocket.rpc.nameserver.lookup import is_broker as is_broker
    from pyrocket.rpc.nameserver.lookup import live_brokers as live_brokers
    from pyrocket.rpc.remote_admin import RemoteAdmin as RemoteAdmin
    from pyrocket.rpc.remote_sink import RemoteSink as RemoteSink
    from pyrocket.rpc.remote_source import RemoteSource as RemoteSource
    from pyrocket.rpc.version_watch import VersionWatch as VersionWatch
    from pyrocket.services.sink.batch import Published as Published
    from pyrocket.services.sink.batch import SinkBatch as SinkBatch
    from pyrocket.services.sink.batch import Staged as Staged
    from pyrocket.services.sink.sink import Sink as Sink
    from pyrocket.services.sink.staging import Stager as Stager
    from pyrocket.services.transactions.model import HalfMessageRef as HalfMessageRef
    from pyrocket.services.transactions.model import LocalTransactionState as LocalTransactionState
    from pyrocket.services.transactions.model import TransactionListener as TransactionListener
    from pyrocket.services.transactions.model import TransactionSendResult as TransactionSendResult
    from pyrocket.services.transactions.transactions import Transactions as Transactions
    from pyrocket.store import Store as Store
    from pyrocket.views.parts import VIEW_COLUMNS as VIEW_COLUMNS
    from pyrocket.views.parts import ViewName as ViewName
    from pyrocket.views.parts import ViewPart as ViewPart
    from pyrocket.views.pending import PENDING_COLUMNS as PENDING_COLUMNS
    from pyrocket.views.pending import PendingRange as PendingRange
    from pyrocket.views.views import Views as Views

_NAMES = {
    "arguments": "local_path parse_size",
    "broker.interface": "BrokerCalls SourceCalls",
    "broker.source": "ReadPlan StoreSource",
    "config": "Retention StoreConfig parse_duration",
    "engine.group_admin": "AtTime Groups",
    "engine.key_lookup": "LookupRequest LookupResult",
    "errors": "PyrocketError",
    "filters.message_filter": "MessageFilter ScanTally",
    "formats.half_message": "HalfMessage",
    "formats.properties": "KEY_ENCODING_PROPERTY NULL_BODY_PROPERTY",
    "formats.record_columns": "SCAN_COLUMNS",
    "formats.record_slice": "RecordSlice decode_slices",
    "formats.send_columns": "SEND_COLUMNS check_send_schema",
    "index.queues.message_locations": "MessageLocations",
    "message": "AppendResult ByteSpan LogMark Message MessageQueue Position QueueOffsets"
    " QueueRange SendResult SourceIdentity StoredMessage",
    "metadata.groups": "GroupConfig check_group_name",
    "metadata.topics": "TopicConfig check_topic_name is_system_topic",
    "rpc.client": "Client Timeouts",
    "rpc.connection": "Connection Credentials read_credentials",
    "rpc.nameserver.lookup": "RouteLookup is_broker live_brokers",
    "rpc.remote_admin": "RemoteAdmin",
    "rpc.remote_sink": "RemoteSink",
    "rpc.remote_source": "RemoteSource",
    "rpc.version_watch": "VersionWatch",
    "services.sink.batch": "Published SinkBatch Staged",
    "services.sink.sink": "Sink",
    "services.sink.staging": "Stager",
    "services.transactions.model": "HalfMessageRef LocalTransactionState TransactionListener"
    " TransactionSendResult",
    "services.transactions.transactions": "Transactions",
    "store": "Store",
    "views.parts": "VIEW_COLUMNS ViewName ViewPart",
    "views.pending": "PENDING_COLUMNS PendingRange",
    "views.views": "Views",
}
"""The public names by the module that defines them, from which they are imported on first use."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, which keeps `import pyrocket` fast."""
    if name == "__version__":
        return importlib.import_module("pyrocket.versions").RELEASE
    if name not in _HOMES:
        raise AttributeError(f"module 'pyrocket' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyrocket.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return all names, including public names that are not imported yet."""
    return sorted({*globals(), *__all__, "__version__"})
