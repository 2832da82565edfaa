"""Options of Kafka's source, of other connectors and of Spark, rejected with an explanation.

Users may copy them from other jobs, and an option without effect must not be ignored silently.
"""

from dataclasses import dataclass

_KAFKA = "is Kafka's"
_CLIENT = "configures a Kafka client, which is not used here"
_STORE = "Name the store's directory with 'path', or its broker with 'endpoint'."
_FILES = "is for files that Spark reads"
_WRITING = "belongs to the query that writes the stream"


@dataclass(frozen=True)
class ForeignOption:
    """An option of another source, or of another part of Spark.

    name: as in the other source's documentation; Spark passes option names in lower case.
    what: what the option does, as the rest of a sentence that begins with the option's name.
    ours: the equivalent or nearest option of this source, or "".
    instead: the remedy if there is no such option.
    """

    name: str
    what: str
    ours: str = ""
    instead: str = ""


_OPTIONS = (
    ForeignOption("kafka.bootstrap.servers", "names Kafka's brokers", instead=_STORE),
    ForeignOption("bootstrap.servers", "names Kafka's brokers", instead=_STORE),
    ForeignOption("kafka.group.id", _CLIENT, "commitToGroup"),
    ForeignOption("kafka.auto.offset.reset", _CLIENT, "startingOffsets"),
    ForeignOption("kafka.max.poll.records", _CLIENT, "maxOffsetsPerTrigger"),
    ForeignOption("kafka.acks", _CLIENT, "flush"),
    ForeignOption("kafka.allow.auto.create.topics", _CLIENT, "createIfMissing"),
    ForeignOption("kafka.enable.idempotence", _CLIENT, "delivery"),
    ForeignOption("kafka.transactional.id", _CLIENT, "txnAppId"),
    ForeignOption(
        "groupIdPrefix",
        f"{_KAFKA}: a prefix for the consumer groups that its source creates; none are created"
        " here",
        "commitToGroup",
    ),
    ForeignOption("nameServer", "names RocketMQ's name servers", instead=_STORE),
    ForeignOption("topics", "is Pulsar's name for several topics", "subscribe"),
    ForeignOption("topicsPattern", "is Pulsar's name for a pattern of topics", "subscribePattern"),
    ForeignOption("tag", "is rocketmq-connect's name for tags", "tags"),
    ForeignOption("filter.tag", "is rocketmq-flink's name for tags", "tags"),
    ForeignOption("filter.sql", "is rocketmq-flink's name for SQL92", "sql"),
    ForeignOption("sql92", "is RocketMQ's name for SQL on properties", "sql"),
    ForeignOption("maxRecordsPerBatch", "is another connector's limit", "maxOffsetsPerTrigger"),
    ForeignOption("maxBytesPerBatch", "is another connector's limit", "maxBytesPerTrigger"),
    ForeignOption(
        "checkpointLocation",
        _WRITING,
        instead="Set it there: df.writeStream.option('checkpointLocation', ...).",
    ),
    ForeignOption("queryName", _WRITING, instead="Set it there: df.writeStream.queryName(...)."),
    ForeignOption(
        "outputMode", _WRITING, instead="Set it there: df.writeStream.outputMode('append')."
    ),
    ForeignOption(
        "trigger",
        _WRITING,
        instead="Set it there: df.writeStream.trigger(processingTime=...) or (availableNow=True).",
    ),
    ForeignOption("maxFilesPerTrigger", _FILES, "maxOffsetsPerTrigger"),
    ForeignOption("inferSchema", _FILES, "valueFormat"),
    ForeignOption("rowsPerSecond", "is for Spark's rate source", "maxOffsetsPerTrigger"),
    ForeignOption("numPartitions", "is for Spark's JDBC and rate sources", "minPartitions"),
    *(
        ForeignOption(
            name, _FILES, instead="Remove it: 'valueFormat' defines how bodies are decoded."
        )
        for name in (
            *("header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "lineSep"),
            *("multiLine", "dateFormat", "timestampFormat", "mergeSchema", "compression"),
            *("recursiveFileLookup", "pathGlobFilter", "modifiedAfter", "modifiedBefore"),
            *("latestFirst", "maxFileAge", "fileNameOnly", "cleanSource", "sourceArchiveDir"),
        )
    ),
)

_BY_NAME = {option.name.lower(): option for option in _OPTIONS}

_BY_PREFIX = (
    ForeignOption("kafka.", _CLIENT),
    ForeignOption("kafkaConsumer.", f"{_KAFKA}: how long a task waits for a Kafka broker"),
    ForeignOption("fetchOffset.", f"{_KAFKA}: how often a failed call to Kafka is retried"),
)
_TAILS = {
    tail.lower(): tail for tail in ("pollTimeoutMs", "numRetries", "retryIntervalMs", "retries")
}


def foreign_option(key: str) -> ForeignOption | None:
    """Return the known foreign option of this name, or None."""
    known = _BY_NAME.get(key.lower())
    if known is not None:
        return known
    for prefix in _BY_PREFIX:
        if key.lower().startswith(prefix.name.lower()):
            tail = key[len(prefix.name) :]
            return ForeignOption(prefix.name + _TAILS.get(tail.lower(), tail), prefix.what)
    return None
