"""Options of other sources are explained, and only similar names are suggested."""

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket.options.foreign import _OPTIONS, foreign_option
from pyspark_pyrocket.options.option import BATCH, READ, SINK, STREAM
from pyspark_pyrocket.options.table import TABLE, known_options, names_for, nearest

EVERY = "Options of a"


def refused(name, query=STREAM):
    with pytest.raises(OptionError) as info:
        known_options({name: "x"}, query)
    assert info.value.code == "OPTION_UNKNOWN"
    return info.value


@pytest.mark.parametrize(
    ("typed", "query", "what", "remedy"),
    [
        ("groupIdPrefix", STREAM, "'groupIdPrefix' is Kafka's", "'commitToGroup'"),
        ("groupidprefix", BATCH, "'groupIdPrefix' is Kafka's", "Remove it."),
        ("fetchOffset.numRetries", STREAM, "'fetchOffset.numRetries' is Kafka's", "Remove it."),
        ("fetchoffset.retryintervalms", BATCH, "'fetchOffset.retryIntervalMs'", "Remove it."),
        ("kafkaConsumer.pollTimeoutMs", STREAM, "'kafkaConsumer.pollTimeoutMs' is", "Remove it."),
        ("kafka.bootstrap.servers", SINK, "names Kafka's brokers", "'path'"),
        ("bootstrap.servers", BATCH, "names Kafka's brokers", "'path'"),
        ("kafka.acks", SINK, "configures a Kafka client", "'flush'"),
        ("kafka.acks", STREAM, "configures a Kafka client", "Remove it."),
        ("kafka.topic", STREAM, "configures a Kafka client", "'topic'"),
        ("kafka.ssl.truststore.location", STREAM, "configures a Kafka client", "Remove it."),
        ("checkpointLocation", STREAM, "belongs to the query that writes", "df.writeStream.option"),
        ("checkpointlocation", BATCH, "'checkpointLocation' belongs", "df.writeStream.option"),
        ("queryName", STREAM, "belongs to the query that writes", "df.writeStream.queryName("),
        ("outputMode", STREAM, "belongs to the query that writes", "outputMode('append')"),
        ("header", BATCH, "'header' is for files that Spark reads", "Remove it"),
        ("header", SINK, "'header' is for files that Spark reads", "Remove it"),
        ("inferSchema", BATCH, "is for files that Spark reads", "'valueFormat'"),
        ("nameServer", BATCH, "names RocketMQ's name servers", "with 'path'"),
    ],
)
def test_an_option_of_another_source_is_rejected_with_an_explanation(typed, query, what, remedy):
    error = refused(typed, query)
    assert what in error.message
    assert remedy in error.remedy
    assert EVERY not in error.remedy


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("startingOffset", "startingOffsets"),
        ("Startingofset", "startingOffsets"),
        ("startOffset", "startingOffsets"),
        ("maxOffsets", "maxOffsetsPerTrigger"),
        ("timestamp", "startingTimestamp"),
        ("tagz", "tags"),
        ("subscribtion", "subscribe"),
    ],
)
def test_only_a_similar_name_is_suggested(typed, near):
    error = refused(typed)
    assert error.message == f"There is no option {typed!r}."
    assert error.remedy == f"Did you mean {near!r}?"


@pytest.mark.parametrize("typed", ["offset", "filter", "query", "acks", "pullBatchSize", "x"])
def test_all_options_are_listed_if_no_name_is_similar(typed):
    remedy = refused(typed).remedy
    assert remedy.startswith("Remove it.")
    assert "Did you mean" not in remedy
    assert f"{EVERY} stream query: path, endpoint, namesrv, " in remedy


def test_no_option_is_suggested_for_header():
    for query in (BATCH, STREAM, SINK, READ):
        assert nearest("header", names_for(query)) == ""


def test_foreign_options_differ_from_all_options_and_suggest_only_existing_options():
    ours = {option.name.lower() for option in TABLE}
    for option in _OPTIONS:
        assert option.name.lower() not in ours
        assert not option.ours or option.ours.lower() in ours
        assert foreign_option(option.name.upper()) is option
