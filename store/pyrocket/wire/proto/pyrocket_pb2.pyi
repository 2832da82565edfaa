from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicateRequest(_message.Message):
    __slots__ = ("store", "replica", "name", "end", "mark", "term")
    STORE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    store: str
    replica: str
    name: str
    end: int
    mark: LogMark
    term: int
    def __init__(self, store: _Optional[str] = ..., replica: _Optional[str] = ..., name: _Optional[str] = ..., end: _Optional[int] = ..., mark: _Optional[_Union[LogMark, _Mapping]] = ..., term: _Optional[int] = ...) -> None: ...

class ReplicaBlock(_message.Message):
    __slots__ = ("offset", "data", "published", "log_start", "files", "gone", "cursors", "all_files")
    class FilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class CursorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    ALL_FILES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    published: int
    log_start: int
    files: _containers.ScalarMap[str, bytes]
    gone: _containers.RepeatedScalarFieldContainer[str]
    cursors: _containers.ScalarMap[int, int]
    all_files: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., published: _Optional[int] = ..., log_start: _Optional[int] = ..., files: _Optional[_Mapping[str, bytes]] = ..., gone: _Optional[_Iterable[str]] = ..., cursors: _Optional[_Mapping[int, int]] = ..., all_files: _Optional[bool] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("replica", "end", "term")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    replica: str
    end: int
    term: int
    def __init__(self, replica: _Optional[str] = ..., end: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class AcknowledgeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("name", "connected", "end", "lag_bytes", "lag_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    connected: bool
    end: int
    lag_bytes: int
    lag_ms: int
    def __init__(self, name: _Optional[str] = ..., connected: _Optional[bool] = ..., end: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ...) -> None: ...

class Bytes(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "code", "message", "remedy")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    code: str
    message: str
    remedy: str
    def __init__(self, kind: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("release", "protocol")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    release: str
    protocol: int
    def __init__(self, release: _Optional[str] = ..., protocol: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("release", "protocol", "store", "broker", "epoch", "is_recovering", "now_ms", "log_file_bytes", "capabilities", "delay_levels", "default_queues", "auto_create_topics", "max_message_bytes", "timer_max_delay_ms", "max_request_bytes")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMER_MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    release: str
    protocol: int
    store: str
    broker: str
    epoch: int
    is_recovering: bool
    now_ms: int
    log_file_bytes: int
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    delay_levels: str
    default_queues: int
    auto_create_topics: bool
    max_message_bytes: int
    timer_max_delay_ms: int
    max_request_bytes: int
    def __init__(self, release: _Optional[str] = ..., protocol: _Optional[int] = ..., store: _Optional[str] = ..., broker: _Optional[str] = ..., epoch: _Optional[int] = ..., is_recovering: _Optional[bool] = ..., now_ms: _Optional[int] = ..., log_file_bytes: _Optional[int] = ..., capabilities: _Optional[_Iterable[str]] = ..., delay_levels: _Optional[str] = ..., default_queues: _Optional[int] = ..., auto_create_topics: _Optional[bool] = ..., max_message_bytes: _Optional[int] = ..., timer_max_delay_ms: _Optional[int] = ..., max_request_bytes: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunningState(_message.Message):
    __slots__ = ("published", "flushed", "dispatched", "write_error", "disk_full", "replicas", "primary", "term", "sync")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    WRITE_ERROR_FIELD_NUMBER: _ClassVar[int]
    DISK_FULL_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    published: int
    flushed: int
    dispatched: int
    write_error: bool
    disk_full: bool
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    primary: str
    term: int
    sync: str
    def __init__(self, published: _Optional[int] = ..., flushed: _Optional[int] = ..., dispatched: _Optional[int] = ..., write_error: _Optional[bool] = ..., disk_full: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ..., primary: _Optional[str] = ..., term: _Optional[int] = ..., sync: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Version(_message.Message):
    __slots__ = ("published", "dispatched", "structure", "epoch", "is_recovering")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    published: int
    dispatched: int
    structure: int
    epoch: int
    is_recovering: bool
    def __init__(self, published: _Optional[int] = ..., dispatched: _Optional[int] = ..., structure: _Optional[int] = ..., epoch: _Optional[int] = ..., is_recovering: _Optional[bool] = ...) -> None: ...

class MessageQueue(_message.Message):
    __slots__ = ("topic", "broker", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., broker: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class QueueRange(_message.Message):
    __slots__ = ("queue", "start", "end", "epoch")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    queue: MessageQueue
    start: int
    end: int
    epoch: int
    def __init__(self, queue: _Optional[_Union[MessageQueue, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class QueueOffsets(_message.Message):
    __slots__ = ("minimum", "maximum")
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    minimum: int
    maximum: int
    def __init__(self, minimum: _Optional[int] = ..., maximum: _Optional[int] = ...) -> None: ...

class QueueBounds(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: MessageQueue
    value: QueueOffsets
    def __init__(self, key: _Optional[_Union[MessageQueue, _Mapping]] = ..., value: _Optional[_Union[QueueOffsets, _Mapping]] = ...) -> None: ...

class QueueNumber(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: MessageQueue
    value: int
    def __init__(self, key: _Optional[_Union[MessageQueue, _Mapping]] = ..., value: _Optional[int] = ...) -> None: ...

class QueueBoundsReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[QueueBounds]
    def __init__(self, value: _Optional[_Iterable[_Union[QueueBounds, _Mapping]]] = ...) -> None: ...

class QueueNumbersReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[QueueNumber]
    def __init__(self, value: _Optional[_Iterable[_Union[QueueNumber, _Mapping]]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadPlan(_message.Message):
    __slots__ = ("broker", "store", "epoch", "run", "topics", "bounds")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    store: str
    epoch: int
    run: str
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    bounds: _containers.RepeatedCompositeFieldContainer[QueueBounds]
    def __init__(self, broker: _Optional[str] = ..., store: _Optional[str] = ..., epoch: _Optional[int] = ..., run: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., bounds: _Optional[_Iterable[_Union[QueueBounds, _Mapping]]] = ...) -> None: ...

class TopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicsReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, value: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class TopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TopicReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: Topic
    def __init__(self, value: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "read_queues", "write_queues", "perm", "topic_id", "ordered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    read_queues: int
    write_queues: int
    perm: int
    topic_id: str
    ordered: bool
    def __init__(self, name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ..., topic_id: _Optional[str] = ..., ordered: _Optional[bool] = ...) -> None: ...

class BoundsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class QueuesRequest(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[MessageQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[MessageQueue, _Mapping]]] = ...) -> None: ...

class OffsetsAtRequest(_message.Message):
    __slots__ = ("times_ms",)
    TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    times_ms: _containers.RepeatedCompositeFieldContainer[QueueNumber]
    def __init__(self, times_ms: _Optional[_Iterable[_Union[QueueNumber, _Mapping]]] = ...) -> None: ...

class TruncationsRequest(_message.Message):
    __slots__ = ("epochs", "queues")
    class EpochsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.ScalarMap[str, int]
    queues: _containers.RepeatedCompositeFieldContainer[MessageQueue]
    def __init__(self, epochs: _Optional[_Mapping[str, int]] = ..., queues: _Optional[_Iterable[_Union[MessageQueue, _Mapping]]] = ...) -> None: ...

class LogMark(_message.Message):
    __slots__ = ("log_offset", "store_timestamp", "header_crc")
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    HEADER_CRC_FIELD_NUMBER: _ClassVar[int]
    log_offset: int
    store_timestamp: int
    header_crc: int
    def __init__(self, log_offset: _Optional[int] = ..., store_timestamp: _Optional[int] = ..., header_crc: _Optional[int] = ...) -> None: ...

class MarkRequest(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[QueueNumber]
    def __init__(self, offsets: _Optional[_Iterable[_Union[QueueNumber, _Mapping]]] = ...) -> None: ...

class MarkReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: LogMark
    def __init__(self, value: _Optional[_Union[LogMark, _Mapping]] = ...) -> None: ...

class HoldsRequest(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: LogMark
    def __init__(self, mark: _Optional[_Union[LogMark, _Mapping]] = ...) -> None: ...

class HoldsReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bool
    def __init__(self, value: _Optional[bool] = ...) -> None: ...

class SizesRequest(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[QueueRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ...) -> None: ...

class ByteSpan(_message.Message):
    __slots__ = ("start", "end", "bytes")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    bytes: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SizesReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[ByteSpan]
    def __init__(self, value: _Optional[_Iterable[_Union[ByteSpan, _Mapping]]] = ...) -> None: ...

class RangeMarks(_message.Message):
    __slots__ = ("range", "marks")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    range: QueueRange
    marks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, range: _Optional[_Union[QueueRange, _Mapping]] = ..., marks: _Optional[_Iterable[int]] = ...) -> None: ...

class SplitAtBytesRequest(_message.Message):
    __slots__ = ("splits",)
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    splits: _containers.RepeatedCompositeFieldContainer[RangeMarks]
    def __init__(self, splits: _Optional[_Iterable[_Union[RangeMarks, _Mapping]]] = ...) -> None: ...

class SplitPoint(_message.Message):
    __slots__ = ("offset", "bytes")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    bytes: int
    def __init__(self, offset: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SplitPoints(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[SplitPoint]
    def __init__(self, values: _Optional[_Iterable[_Union[SplitPoint, _Mapping]]] = ...) -> None: ...

class SplitAtBytesReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[SplitPoints]
    def __init__(self, value: _Optional[_Iterable[_Union[SplitPoints, _Mapping]]] = ...) -> None: ...

class MessageFilter(_message.Message):
    __slots__ = ("tags", "sql")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    tags: str
    sql: str
    def __init__(self, tags: _Optional[str] = ..., sql: _Optional[str] = ...) -> None: ...

class SlicesRequest(_message.Message):
    __slots__ = ("ranges", "where")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[QueueRange]
    where: MessageFilter
    def __init__(self, ranges: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ..., where: _Optional[_Union[MessageFilter, _Mapping]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("topics", "keys", "ids", "begin_ms", "end_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    ids: _containers.RepeatedScalarFieldContainer[str]
    begin_ms: int
    end_ms: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., ids: _Optional[_Iterable[str]] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ...) -> None: ...

class MessageLocations(_message.Message):
    __slots__ = ("topic", "queue_id", "offsets", "log_offsets", "sizes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offsets: bytes
    log_offsets: bytes
    sizes: bytes
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offsets: _Optional[bytes] = ..., log_offsets: _Optional[bytes] = ..., sizes: _Optional[bytes] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: LookupRequest
    def __init__(self, request: _Optional[_Union[LookupRequest, _Mapping]] = ...) -> None: ...

class LookupResult(_message.Message):
    __slots__ = ("locations", "index_files", "walked_bytes", "candidates")
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FILES_FIELD_NUMBER: _ClassVar[int]
    WALKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    locations: _containers.RepeatedCompositeFieldContainer[MessageLocations]
    index_files: int
    walked_bytes: int
    candidates: int
    def __init__(self, locations: _Optional[_Iterable[_Union[MessageLocations, _Mapping]]] = ..., index_files: _Optional[int] = ..., walked_bytes: _Optional[int] = ..., candidates: _Optional[int] = ...) -> None: ...

class LocateReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: LookupResult
    def __init__(self, value: _Optional[_Union[LookupResult, _Mapping]] = ...) -> None: ...

class SlicesAtRequest(_message.Message):
    __slots__ = ("locations", "where")
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    locations: MessageLocations
    where: MessageFilter
    def __init__(self, locations: _Optional[_Union[MessageLocations, _Mapping]] = ..., where: _Optional[_Union[MessageFilter, _Mapping]] = ...) -> None: ...

class PendingRange(_message.Message):
    __slots__ = ("topic", "queue_id", "start", "end", "offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    start: int
    end: int
    offsets: bytes
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class LogPart(_message.Message):
    __slots__ = ("start", "end", "is_whole", "topics", "skips_damage")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_DAMAGE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    is_whole: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    skips_damage: bool
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., is_whole: _Optional[bool] = ..., topics: _Optional[_Iterable[str]] = ..., skips_damage: _Optional[bool] = ...) -> None: ...

class RetryPart(_message.Message):
    __slots__ = ("topic", "group", "queue_id", "start", "end", "committed", "weight")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    queue_id: int
    start: int
    end: int
    committed: int
    weight: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., queue_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., committed: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class PendingRetryPart(_message.Message):
    __slots__ = ("pending", "groups")
    class GroupsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PENDING_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    pending: PendingRange
    groups: _containers.ScalarMap[str, str]
    def __init__(self, pending: _Optional[_Union[PendingRange, _Mapping]] = ..., groups: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TablePart(_message.Message):
    __slots__ = ("view", "group", "topics", "weight")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    view: str
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    def __init__(self, view: _Optional[str] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("pending_range", "log_part", "retry_part", "pending_retry_part", "table_part")
    PENDING_RANGE_FIELD_NUMBER: _ClassVar[int]
    LOG_PART_FIELD_NUMBER: _ClassVar[int]
    RETRY_PART_FIELD_NUMBER: _ClassVar[int]
    PENDING_RETRY_PART_FIELD_NUMBER: _ClassVar[int]
    TABLE_PART_FIELD_NUMBER: _ClassVar[int]
    pending_range: PendingRange
    log_part: LogPart
    retry_part: RetryPart
    pending_retry_part: PendingRetryPart
    table_part: TablePart
    def __init__(self, pending_range: _Optional[_Union[PendingRange, _Mapping]] = ..., log_part: _Optional[_Union[LogPart, _Mapping]] = ..., retry_part: _Optional[_Union[RetryPart, _Mapping]] = ..., pending_retry_part: _Optional[_Union[PendingRetryPart, _Mapping]] = ..., table_part: _Optional[_Union[TablePart, _Mapping]] = ...) -> None: ...

class PlanViewRequest(_message.Message):
    __slots__ = ("view", "topics", "group", "skips_damage")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SKIPS_DAMAGE_FIELD_NUMBER: _ClassVar[int]
    view: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    group: str
    skips_damage: bool
    def __init__(self, view: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., skips_damage: _Optional[bool] = ...) -> None: ...

class PlanViewReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, value: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class ReadViewRequest(_message.Message):
    __slots__ = ("part", "columns", "topics", "verify_crc")
    PART_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_CRC_FIELD_NUMBER: _ClassVar[int]
    part: Part
    columns: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    verify_crc: bool
    def __init__(self, part: _Optional[_Union[Part, _Mapping]] = ..., columns: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ..., verify_crc: _Optional[bool] = ...) -> None: ...

class CommittedRequest(_message.Message):
    __slots__ = ("group", "topics")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: Names
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Union[Names, _Mapping]] = ...) -> None: ...

class Names(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "offsets", "backwards")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BACKWARDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueNumber]
    backwards: bool
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueNumber, _Mapping]]] = ..., backwards: _Optional[bool] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("topic", "create", "queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    create: bool
    queues: int
    def __init__(self, topic: _Optional[str] = ..., create: _Optional[bool] = ..., queues: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("topics",)
    class TopicsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.ScalarMap[str, int]
    def __init__(self, topics: _Optional[_Mapping[str, int]] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("rows", "bytes", "log_end", "status")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    bytes: int
    log_end: int
    status: str
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., log_end: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("topic", "body", "tags", "keys", "properties", "sharding_key", "queue_id", "flag", "delay_level", "deliver_at_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SHARDING_KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    body: bytes
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    sharding_key: str
    queue_id: int
    flag: int
    delay_level: int
    deliver_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., body: _Optional[bytes] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., sharding_key: _Optional[str] = ..., queue_id: _Optional[int] = ..., flag: _Optional[int] = ..., delay_level: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class SendResult(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "physical_offset", "msg_id", "offset_msg_id", "status", "broker")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    offset_msg_id: str
    status: str
    broker: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., msg_id: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., status: _Optional[str] = ..., broker: _Optional[str] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("name", "number", "topics")
    class TopicsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    topics: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., topics: _Optional[_Mapping[str, int]] = ...) -> None: ...

class StageReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishStagingRequest(_message.Message):
    __slots__ = ("name", "blocks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    blocks: int
    def __init__(self, name: _Optional[str] = ..., blocks: _Optional[int] = ...) -> None: ...

class FileEnd(_message.Message):
    __slots__ = ("length", "checksum")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    length: int
    checksum: int
    def __init__(self, length: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class FinishStagingReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: FileEnd
    def __init__(self, value: _Optional[_Union[FileEnd, _Mapping]] = ...) -> None: ...

class BootTime(_message.Message):
    __slots__ = ("boot", "ns")
    BOOT_FIELD_NUMBER: _ClassVar[int]
    NS_FIELD_NUMBER: _ClassVar[int]
    boot: str
    ns: int
    def __init__(self, boot: _Optional[str] = ..., ns: _Optional[int] = ...) -> None: ...

class SinkBatch(_message.Message):
    __slots__ = ("identity", "target", "batch", "run", "began")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    identity: str
    target: str
    batch: int
    run: str
    began: BootTime
    def __init__(self, identity: _Optional[str] = ..., target: _Optional[str] = ..., batch: _Optional[int] = ..., run: _Optional[str] = ..., began: _Optional[_Union[BootTime, _Mapping]] = ...) -> None: ...

class ContentSum(_message.Message):
    __slots__ = ("bytes", "sum")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    sum: int
    def __init__(self, bytes: _Optional[int] = ..., sum: _Optional[int] = ...) -> None: ...

class Staged(_message.Message):
    __slots__ = ("name", "rows", "bytes", "file_bytes", "checksum", "content", "store", "topics", "left_out")
    class TopicsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    bytes: int
    file_bytes: int
    checksum: int
    content: ContentSum
    store: str
    topics: _containers.ScalarMap[str, int]
    left_out: int
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., file_bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., content: _Optional[_Union[ContentSum, _Mapping]] = ..., store: _Optional[str] = ..., topics: _Optional[_Mapping[str, int]] = ..., left_out: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("batch", "staged", "on_difference", "on_gap", "create")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    ON_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    ON_GAP_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    batch: SinkBatch
    staged: _containers.RepeatedCompositeFieldContainer[Staged]
    on_difference: str
    on_gap: str
    create: bool
    def __init__(self, batch: _Optional[_Union[SinkBatch, _Mapping]] = ..., staged: _Optional[_Iterable[_Union[Staged, _Mapping]]] = ..., on_difference: _Optional[str] = ..., on_gap: _Optional[str] = ..., create: _Optional[bool] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("rows", "bytes", "dropped", "log_end", "left_out")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    bytes: int
    dropped: bool
    log_end: int
    left_out: int
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., dropped: _Optional[bool] = ..., log_end: _Optional[int] = ..., left_out: _Optional[int] = ...) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("staged",)
    STAGED_FIELD_NUMBER: _ClassVar[int]
    staged: _containers.RepeatedCompositeFieldContainer[Staged]
    def __init__(self, staged: _Optional[_Iterable[_Union[Staged, _Mapping]]] = ...) -> None: ...

class DiscardReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RetentionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Retention(_message.Message):
    __slots__ = ("hours", "at_hours", "total_bytes", "clean_ratio", "force_ratio", "full_ratio", "files_per_run")
    HOURS_FIELD_NUMBER: _ClassVar[int]
    AT_HOURS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLEAN_RATIO_FIELD_NUMBER: _ClassVar[int]
    FORCE_RATIO_FIELD_NUMBER: _ClassVar[int]
    FULL_RATIO_FIELD_NUMBER: _ClassVar[int]
    FILES_PER_RUN_FIELD_NUMBER: _ClassVar[int]
    hours: float
    at_hours: _containers.RepeatedScalarFieldContainer[int]
    total_bytes: int
    clean_ratio: float
    force_ratio: float
    full_ratio: float
    files_per_run: int
    def __init__(self, hours: _Optional[float] = ..., at_hours: _Optional[_Iterable[int]] = ..., total_bytes: _Optional[int] = ..., clean_ratio: _Optional[float] = ..., force_ratio: _Optional[float] = ..., full_ratio: _Optional[float] = ..., files_per_run: _Optional[int] = ...) -> None: ...

class RetentionReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: Retention
    def __init__(self, value: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "read_queues", "write_queues", "perm", "ordered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    read_queues: int
    write_queues: int
    perm: int
    ordered: bool
    def __init__(self, name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ..., ordered: _Optional[bool] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("name", "read_queues", "write_queues", "perm", "message_type", "ordered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    read_queues: int
    write_queues: int
    perm: int
    message_type: str
    ordered: bool
    def __init__(self, name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ..., message_type: _Optional[str] = ..., ordered: _Optional[bool] = ...) -> None: ...

class MessageTypeReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupConfig(_message.Message):
    __slots__ = ("name", "consume_enabled", "retry_queues", "retry_max_times", "fifo", "backoff")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_TIMES_FIELD_NUMBER: _ClassVar[int]
    FIFO_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    name: str
    consume_enabled: bool
    retry_queues: int
    retry_max_times: int
    fifo: bool
    backoff: Backoff
    def __init__(self, name: _Optional[str] = ..., consume_enabled: _Optional[bool] = ..., retry_queues: _Optional[int] = ..., retry_max_times: _Optional[int] = ..., fifo: _Optional[bool] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("delays_ms", "initial_ms", "max_ms", "multiplier")
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    initial_ms: int
    max_ms: int
    multiplier: int
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ..., initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[int] = ...) -> None: ...

class GroupsReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[GroupConfig]
    def __init__(self, value: _Optional[_Iterable[_Union[GroupConfig, _Mapping]]] = ...) -> None: ...

class GroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GroupReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: GroupConfig
    def __init__(self, value: _Optional[_Union[GroupConfig, _Mapping]] = ...) -> None: ...

class GroupLag(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "committed", "minimum", "maximum", "delay_ms", "first")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    committed: int
    minimum: int
    maximum: int
    delay_ms: int
    first: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., committed: _Optional[int] = ..., minimum: _Optional[int] = ..., maximum: _Optional[int] = ..., delay_ms: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class LagReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[GroupLag]
    def __init__(self, value: _Optional[_Iterable[_Union[GroupLag, _Mapping]]] = ...) -> None: ...

class LiveMember(_message.Message):
    __slots__ = ("client_id", "differs")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    differs: bool
    def __init__(self, client_id: _Optional[str] = ..., differs: _Optional[bool] = ...) -> None: ...

class MembersReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[LiveMember]
    def __init__(self, value: _Optional[_Iterable[_Union[LiveMember, _Mapping]]] = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("group", "consume_enabled", "retry_queues", "retry_max_times", "fifo", "backoff")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_TIMES_FIELD_NUMBER: _ClassVar[int]
    FIFO_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    group: str
    consume_enabled: bool
    retry_queues: int
    retry_max_times: int
    fifo: bool
    backoff: Backoff
    def __init__(self, group: _Optional[str] = ..., consume_enabled: _Optional[bool] = ..., retry_queues: _Optional[int] = ..., retry_max_times: _Optional[int] = ..., fifo: _Optional[bool] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ...) -> None: ...

class DeleteGroupReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("group", "topic", "rule", "time_ms", "offsets", "force")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    rule: str
    time_ms: int
    offsets: _containers.ScalarMap[int, int]
    force: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., rule: _Optional[str] = ..., time_ms: _Optional[int] = ..., offsets: _Optional[_Mapping[int, int]] = ..., force: _Optional[bool] = ...) -> None: ...

class ResetGroupReply(_message.Message):
    __slots__ = ("value",)
    class ValueEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.ScalarMap[int, int]
    def __init__(self, value: _Optional[_Mapping[int, int]] = ...) -> None: ...

class SetRetentionRequest(_message.Message):
    __slots__ = ("retention",)
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    retention: Retention
    def __init__(self, retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class SetRetentionReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CleanRequest(_message.Message):
    __slots__ = ("hours", "total_bytes", "dry_run")
    HOURS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    hours: float
    total_bytes: int
    dry_run: bool
    def __init__(self, hours: _Optional[float] = ..., total_bytes: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class LogFile(_message.Message):
    __slots__ = ("start", "bytes", "closed_ms")
    START_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_MS_FIELD_NUMBER: _ClassVar[int]
    start: int
    bytes: int
    closed_ms: int
    def __init__(self, start: _Optional[int] = ..., bytes: _Optional[int] = ..., closed_ms: _Optional[int] = ...) -> None: ...

class Removal(_message.Message):
    __slots__ = ("file", "reason")
    FILE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    file: LogFile
    reason: str
    def __init__(self, file: _Optional[_Union[LogFile, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("file", "held_by")
    FILE_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    file: LogFile
    held_by: str
    def __init__(self, file: _Optional[_Union[LogFile, _Mapping]] = ..., held_by: _Optional[str] = ...) -> None: ...

class CleanReport(_message.Message):
    __slots__ = ("removals", "queue_files", "index_files", "dry_run", "log_start", "staged_files", "staged_bytes", "kept", "messages", "disk_bytes")
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FILES_FIELD_NUMBER: _ClassVar[int]
    INDEX_FILES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    STAGED_FILES_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    removals: _containers.RepeatedCompositeFieldContainer[Removal]
    queue_files: int
    index_files: int
    dry_run: bool
    log_start: int
    staged_files: int
    staged_bytes: int
    kept: _containers.RepeatedCompositeFieldContainer[Kept]
    messages: int
    disk_bytes: int
    def __init__(self, removals: _Optional[_Iterable[_Union[Removal, _Mapping]]] = ..., queue_files: _Optional[int] = ..., index_files: _Optional[int] = ..., dry_run: _Optional[bool] = ..., log_start: _Optional[int] = ..., staged_files: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., kept: _Optional[_Iterable[_Union[Kept, _Mapping]]] = ..., messages: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class CleanReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: CleanReport
    def __init__(self, value: _Optional[_Union[CleanReport, _Mapping]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("registration",)
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    registration: Registration
    def __init__(self, registration: _Optional[_Union[Registration, _Mapping]] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("cluster", "broker", "broker_id", "address", "data_version", "topics", "store", "term")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker: str
    broker_id: int
    address: str
    data_version: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicData]
    store: str
    term: int
    def __init__(self, cluster: _Optional[str] = ..., broker: _Optional[str] = ..., broker_id: _Optional[int] = ..., address: _Optional[str] = ..., data_version: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicData, _Mapping]]] = ..., store: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class TopicData(_message.Message):
    __slots__ = ("name", "read_queues", "write_queues", "perm", "message_type", "ordered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    read_queues: int
    write_queues: int
    perm: int
    message_type: str
    ordered: bool
    def __init__(self, name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ..., message_type: _Optional[str] = ..., ordered: _Optional[bool] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RoutesRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class RoutesReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[Route]
    def __init__(self, value: _Optional[_Iterable[_Union[Route, _Mapping]]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("topic", "queues", "brokers", "gone")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueData]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerData]
    gone: _containers.RepeatedCompositeFieldContainer[QueueData]
    def __init__(self, topic: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueData, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[BrokerData, _Mapping]]] = ..., gone: _Optional[_Iterable[_Union[QueueData, _Mapping]]] = ...) -> None: ...

class QueueData(_message.Message):
    __slots__ = ("broker", "topic")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    broker: str
    topic: TopicData
    def __init__(self, broker: _Optional[str] = ..., topic: _Optional[_Union[TopicData, _Mapping]] = ...) -> None: ...

class BrokerData(_message.Message):
    __slots__ = ("cluster", "name", "addresses", "data_version")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    addresses: _containers.ScalarMap[int, str]
    data_version: int
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ..., addresses: _Optional[_Mapping[int, str]] = ..., data_version: _Optional[int] = ...) -> None: ...

class ClusterTopicsRequest(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    def __init__(self, cluster: _Optional[str] = ...) -> None: ...

class ClusterTopicsReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, value: _Optional[_Iterable[str]] = ...) -> None: ...

class BrokersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokersReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[BrokerData]
    def __init__(self, value: _Optional[_Iterable[_Union[BrokerData, _Mapping]]] = ...) -> None: ...
