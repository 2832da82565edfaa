"""pyrocket: RocketMQ's store in Python: topics on disk, without a server and without a jar.

From the bottom up; each layer knows only those below it:

errors, message, durations, config, clock, versions   words that everybody uses
formats    bytes as values: records, queue entries, properties; pure
disk       bytes as files: names, locks, fixed-size files, shared words
filters    which messages a reader wants: tags, SQL on properties; pure
log        the CommitLog: the only truth
json_table RocketMQ's JSON files, with their backups
index      what can be rebuilt from the log: queues, and the section that appends to both
sizes      what size a store's files have, told by them
services   topics, groups, identity, epochs, routing, ids
reader     the reading half of a store: never locks, never writes
writer     the writing half: presence, recovery, clean end
redelivery after a loss of power: what had been delivered
due_copies delayed messages as they are delivered
outgoing   messages and batches checked, routed and encoded
encoding   batches of rows as records of their topics
cleaner    removing what has had its time
checks     what can be wrong with a store
verify     all checks in one pass over the log
sender     from there to appends
topic_admin   making, changing and deleting topics
lookup     messages by key and by id
group_admin   what consumer groups have committed
repair     mending what `verify` finds
snapshot   a copy of a store in use
sink       batches that become visible whole, once
transactions   messages that become visible if a local transaction succeeds
delivery   delay levels: what is due, delivered
service_runner   who does what is due, and when
advancing  the same for a store that is open for reading
places     single messages of a queue, read on their own
locating   many messages by key and by id, at once
parked     a look at what waits
views      what is there besides the messages of topics
store      the façade: `Store`
notebook   tables of what is in a store, for people
cli        the command `pyrocket`
testing    a clock that all processes of a test's store obey
pytest_plugin   fixtures for tests of what uses a store
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrocket.arguments import local_path, parse_size
    from pyrocket.config import Retention, StoreConfig, parse_duration
    from pyrocket.engine.group_admin import AtTime, Groups
    from pyrocket.engine.locating import LookupRequest, LookupResult
    from pyrocket.engine.message_locations import MessageLocations
    from pyrocket.errors import PyrocketError
    from pyrocket.filters.message_filter import MessageFilter, ScanTally
    from pyrocket.formats.half_message import HalfMessage
    from pyrocket.formats.pending_columns import PENDING_COLUMNS
    from pyrocket.formats.properties import KEY_ENCODING_PROPERTY, NULL_BODY_PROPERTY
    from pyrocket.formats.record_columns import SCAN_COLUMNS
    from pyrocket.formats.record_slice import RecordSlice, decode_slices
    from pyrocket.formats.send_columns import SEND_COLUMNS, check_send_schema
    from pyrocket.message import (
        AppendResult,
        ByteSpan,
        LogMark,
        Message,
        MessageQueue,
        Position,
        QueueOffsets,
        SendResult,
        StoredMessage,
    )
    from pyrocket.metadata.groups import GroupConfig, check_group_name
    from pyrocket.metadata.topics import TopicConfig, check_topic_name, is_system_topic
    from pyrocket.services.sink.batch import Published, SinkBatch, Staged
    from pyrocket.services.sink.sink import Sink
    from pyrocket.services.sink.stager import Stager
    from pyrocket.services.transactions.model import (
        HalfMessageRef,
        LocalTransactionState,
        TransactionListener,
        TransactionSendResult,
    )
    from pyrocket.services.transactions.producer import TransactionProducer
    from pyrocket.services.transactions.transactions import Transactions
    from pyrocket.store import Store
    from pyrocket.views.parts import VIEW_COLUMNS, ViewName, ViewPart
    from pyrocket.views.pending import PendingRange
    from pyrocket.views.views import Views

__all__ = [
    "KEY_ENCODING_PROPERTY",
    "NULL_BODY_PROPERTY",
    "PENDING_COLUMNS",
    "SCAN_COLUMNS",
    "SEND_COLUMNS",
    "VIEW_COLUMNS",
    "AppendResult",
    "AtTime",
    "ByteSpan",
    "GroupConfig",
    "Groups",
    "HalfMessage",
    "HalfMessageRef",
    "LocalTransactionState",
    "LogMark",
    "LookupRequest",
    "LookupResult",
    "Message",
    "MessageFilter",
    "MessageLocations",
    "MessageQueue",
    "PendingRange",
    "Position",
    "Published",
    "PyrocketError",
    "QueueOffsets",
    "RecordSlice",
    "Retention",
    "ScanTally",
    "SendResult",
    "Sink",
    "SinkBatch",
    "Staged",
    "Stager",
    "Store",
    "StoreConfig",
    "StoredMessage",
    "TopicConfig",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "Transactions",
    "ViewName",
    "ViewPart",
    "Views",
    "check_group_name",
    "check_send_schema",
    "check_topic_name",
    "decode_slices",
    "is_system_topic",
    "local_path",
    "parse_duration",
    "parse_size",
]

_HOMES = {
    "KEY_ENCODING_PROPERTY": "formats.properties",
    "NULL_BODY_PROPERTY": "formats.properties",
    "PENDING_COLUMNS": "formats.pending_columns",
    "SCAN_COLUMNS": "formats.record_columns",
    "SEND_COLUMNS": "formats.send_columns",
    "VIEW_COLUMNS": "views.parts",
    "AppendResult": "message",
    "AtTime": "engine.group_admin",
    "ByteSpan": "message",
    "GroupConfig": "metadata.groups",
    "Groups": "engine.group_admin",
    "HalfMessage": "formats.half_message",
    "HalfMessageRef": "services.transactions.model",
    "LocalTransactionState": "services.transactions.model",
    "LookupResult": "engine.locating",
    "LogMark": "message",
    "Message": "message",
    "MessageFilter": "filters.message_filter",
    "MessageQueue": "message",
    "PendingRange": "views.pending",
    "MessageLocations": "engine.message_locations",
    "Position": "message",
    "Published": "services.sink.batch",
    "PyrocketError": "errors",
    "QueueOffsets": "message",
    "RecordSlice": "formats.record_slice",
    "Retention": "config",
    "ScanTally": "filters.message_filter",
    "SendResult": "message",
    "Sink": "services.sink.sink",
    "SinkBatch": "services.sink.batch",
    "Staged": "services.sink.batch",
    "Stager": "services.sink.stager",
    "Store": "store",
    "StoreConfig": "config",
    "StoredMessage": "message",
    "TopicConfig": "metadata.topics",
    "TransactionListener": "services.transactions.model",
    "TransactionProducer": "services.transactions.producer",
    "TransactionSendResult": "services.transactions.model",
    "Transactions": "services.transactions.transactions",
    "ViewName": "views.parts",
    "ViewPart": "views.parts",
    "Views": "views.views",
    "LookupRequest": "engine.locating",
    "check_group_name": "metadata.groups",
    "check_send_schema": "formats.send_columns",
    "check_topic_name": "metadata.topics",
    "decode_slices": "formats.record_slice",
    "is_system_topic": "metadata.topics",
    "local_path": "arguments",
    "parse_duration": "config",
    "parse_size": "arguments",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import pyrocket` alone costs nothing."""
    if name == "__version__":
        return importlib.import_module("pyrocket.versions").RELEASE
    if name not in _HOMES:
        raise AttributeError(f"module 'pyrocket' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyrocket.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names too, imported or not."""
    return sorted({*globals(), *__all__, "__version__"})
