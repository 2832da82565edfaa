"""The options: their values, and an error for each invalid use."""

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket.options.option import BATCH, READ, SINK, STREAM
from pyspark_pyrocket.options.positions import EARLIEST, LATEST
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.table import TABLE, names_for
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions


def read(query=BATCH, **options):
    return ReadOptions.parse(Request({"path": "/s", "subscribe": "t", **options}, "/"), query)


def write(**options):
    return WriteOptions.parse(Request({"path": "/s", **options}, "/"))


def test_defaults_of_reads():
    options = read()
    assert options.subscription.topics == ("t",)
    assert options.span.starting.word == EARLIEST
    assert options.span.ending.word == LATEST
    assert options.admission.max_rows is None
    assert not options.subscription.wait
    assert not options.payload.kafka_columns
    assert not options.payload.include_headers
    assert options.splitting.coalesce
    assert not options.verify_crc


def test_a_stream_starts_at_latest_and_a_batch_at_earliest():
    assert read(STREAM).span.starting.word == LATEST
    assert read(BATCH).span.starting.word == EARLIEST


def test_defaults_of_writes():
    options = write()
    assert (options.topic, options.create_if_missing, options.flush) == ("", True, "task")
    assert (options.delivery, options.transaction) == ("exactly-once", None)
    assert options.timer_max_delay_ms == 40 * 86_400_000


def test_names_and_values_are_case_insensitive():
    options = read(STREAM, MISSINGTOPIC="Wait", schemaMODE="KAFKA", STARTINGoffsets="Earliest")
    assert options.subscription.wait
    assert options.payload.kafka_columns
    assert options.span.starting.word == EARLIEST


def test_subscribe_takes_a_list_and_drops_repetitions():
    assert read(subscribe=" b, a ,b").subscription.topics == ("b", "a")


@pytest.mark.parametrize("topics", ["", ",", "a,,b", "a,"])
def test_an_empty_name_in_subscribe_is_rejected(topics):
    with pytest.raises(OptionError, match="empty name"):
        read(subscribe=topics)


def test_topic_subscribes_to_one_topic():
    request = Request({"path": "/s", "topic": "t"}, "/")
    assert ReadOptions.parse(request, BATCH).subscription.topics == ("t",)


@pytest.mark.parametrize("topic", ["", "a,b"])
def test_the_option_topic_accepts_exactly_one_topic(topic):
    with pytest.raises(OptionError, match="one topic"):
        ReadOptions.parse(Request({"path": "/s", "topic": topic}, "/"), BATCH)
    with pytest.raises(OptionError, match="one topic"):
        write(topic=topic)


def test_topic_and_subscribe_together_are_a_conflict():
    with pytest.raises(OptionError, match="keep one"):
        read(topic="t")


def test_a_missing_topic_option_explains_the_create_table_trap():
    with pytest.raises(OptionError, match=r"subscribe.*CREATE TABLE"):
        ReadOptions.parse(Request({"path": "/s"}, "/"), BATCH)


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribes", "subscribe"),
        ("topics", "subscribe"),
        ("maxOffsetPerTriger", "maxOffsetsPerTrigger"),
        ("coalesceQueue", "coalesceQueues"),
        ("kafka.bootstrap.servers", "path"),
        ("kafka.topic", "topic"),
    ],
)
def test_an_unknown_option_is_rejected_with_the_nearest_name(typed, nearest):
    with pytest.raises(OptionError, match=f"'{nearest}'") as info:
        read(STREAM, **{typed: "x"})
    assert info.value.code == "OPTION_UNKNOWN"


def test_an_option_with_no_similar_name_is_rejected_with_all_names():
    with pytest.raises(
        OptionError, match=r"no option 'qqqq'.*subscribe, .*topic, missingTopic, startingOffsets"
    ):
        read(qqqq="1")


def test_every_kafka_option_is_rejected():
    with pytest.raises(OptionError, match="Kafka client"):
        read(**{"kafka.zzz": "1"})


@pytest.mark.parametrize(
    ("query", "option"),
    [
        (BATCH, "maxOffsetsPerTrigger"),
        (STREAM, "endingOffsets"),
        (BATCH, "createIfMissing"),
        (READ, "flush"),
        (STREAM, "checkpointLocation"),
    ],
)
def test_an_option_of_another_kind_of_query_is_rejected(query, option):
    with pytest.raises(OptionError, match=f"(?i){option}"):
        read(query, **{option: "1"})


@pytest.mark.parametrize("option", ["subscribe", "startingOffsets", "valueSchema"])
def test_a_sink_rejects_options_of_reads(option):
    with pytest.raises(OptionError, match="batch and stream queries"):
        write(**{option: "x"})


def test_options_that_spark_adds_to_a_sink_are_ignored():
    assert write(checkpointlocation="/c", queryname="q", topic="t").topic == "t"


def test_options_that_create_table_adds_are_ignored_when_it_requests_the_schema():
    added = {"provider": "pyrocket", "owner": "me", "location": "file:/s", "option.topic": "t"}
    assert read(READ, **added).subscription.topics == ("t",)
    with pytest.raises(OptionError, match="no option 'owner'"):
        read(BATCH, owner="me")


def test_a_schema_can_be_requested_with_the_options_of_either_query():
    assert read(READ, maxOffsetsPerTrigger="5", endingOffsets="latest").admission.max_rows == 5


@pytest.mark.parametrize(
    "option",
    ["missingTopic", "schemaMode", "includeHeaders", "valueFormat", "coalesceQueues", "verifyCrc"],
)
@pytest.mark.parametrize("value", ["", "yes", "qqqq"])
def test_an_unknown_value_of_a_choice_is_rejected(option, value):
    with pytest.raises(OptionError, match=rf"'{option}' is '{value}'. Use "):
        read(**{option: value})


@pytest.mark.parametrize("option", ["createIfMissing", "flush", "schemaMode"])
def test_an_unknown_value_of_a_sinks_choice_is_rejected(option):
    with pytest.raises(OptionError, match=option):
        write(**{option: "qqqq"})


def test_headers_are_a_column_of_kafka_mode():
    assert read(schemaMode="kafka", includeHeaders="true").payload.include_headers
    with pytest.raises(OptionError, match=r"schemaMode=kafka.*properties"):
        read(includeHeaders="true")


@pytest.mark.parametrize("value", ["latest", '{"t":{"0":-1}}', '{"t":{"0":"latest"}}'])
def test_a_batch_cannot_start_at_latest(value):
    with pytest.raises(OptionError, match="is empty"):
        read(BATCH, startingOffsets=value)
    assert read(STREAM, startingOffsets=value).span.starting.is_all(LATEST)


@pytest.mark.parametrize("value", ["earliest", '{"t":{"0":-2}}', '{"t":{"b":{"0":"earliest"}}}'])
def test_a_batch_cannot_end_at_earliest(value):
    with pytest.raises(OptionError, match="is empty"):
        read(BATCH, endingOffsets=value)


def test_a_single_queue_of_a_batch_may_be_empty():
    """As in a stream, such a queue starts at its end, or ends at its start."""
    for value in ('{"t":{"0":-2,"1":-1}}', '{"t":{"0":3,"1":"latest"}}'):
        assert not read(BATCH, startingOffsets=value).span.starting.is_all(LATEST)
        read(BATCH, endingOffsets=value)


def test_every_option_has_a_query_and_a_description():
    assert {query for option in TABLE for query in option.queries} == {BATCH, STREAM, SINK}
    assert all(option.meaning.endswith(".") for option in TABLE)
    assert "flush" not in names_for(READ)


@pytest.mark.parametrize("version", ["0", "7", str(2**63 - 1)])
def test_a_batch_write_can_have_an_id_and_a_version(version):
    named = write(txnAppId=" nightly ", txnVersion=version).transaction
    assert (named.app_id, named.version) == ("nightly", int(version))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"txnAppId": "a"}, "txnAppId.*alone"),
        ({"txnVersion": "1"}, "txnVersion.*alone"),
        ({"txnAppId": " ", "txnVersion": "1"}, "empty"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "whole number of at least 0"),
        ({"txnAppId": "a", "txnVersion": "1.5"}, "whole number of at least 0"),
        ({"txnAppId": "a", "txnVersion": str(2**63)}, "whole number of at least 0"),
        (
            {"txnAppId": "a", "txnVersion": "1", "delivery": "at-least-once"},
            "OPTION_CONFLICT.*does not drop repetitions",
        ),
        ({"delivery": "exactly once"}, "exactly-once or at-least-once"),
        ({"flush": "sync"}, "OPTION_CONFLICT.*Remove 'flush'.*at-least-once"),
        ({"flush": "async", "delivery": "exactly-once"}, "OPTION_CONFLICT.*Remove 'flush'"),
    ],
)
def test_contradicting_options_of_a_write_are_rejected(given, reason):
    with pytest.raises(OptionError, match=reason):
        write(**given)


@pytest.mark.parametrize("flush", ["task", "sync", "async"])
def test_at_least_once_flushes_as_configured(flush):
    assert write(delivery="at-least-once", flush=flush).flush == flush


def test_a_stream_rejects_a_transaction_id_because_its_checkpoint_identifies_it():
    request = Request({"path": "/s", "txnAppId": "a", "txnVersion": "1"}, "/")
    with pytest.raises(OptionError, match=r"OPTION_CONFLICT.*checkpoint.*foreachBatch"):
        WriteOptions.parse(request, streaming=True)


@pytest.mark.parametrize("text", ["", "40", "-1d", "forty days"])
def test_timer_max_delay_is_a_duration(text):
    assert write(timerMaxDelay="1d12h").timer_max_delay_ms == 36 * 3_600_000
    with pytest.raises(OptionError, match="Write a duration"):
        write(timerMaxDelay=text)
