"""A DataFrame is written to a cluster of RocketMQ: what is refused, and what the driver checks."""

import pytest
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    SinkError,
    StoreNotSharedError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyspark.sql.types import StringType, StructField, StructType, TimestampType
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport.interface import Capability
from pyspark_pyrocket.transport.namesrv import NamesrvBrokerTarget
from support.rocketmq_cluster import rocketmq
from support.shares import share

BODY = StructField("body", StringType())
SCHEMA = StructType([BODY])
A, B = "broker-a", "broker-b"


@pytest.fixture(params=share(["5.5", "4.9"], 1))
def made(request, tmp_path):
    with rocketmq(tmp_path, version=request.param, brokers=(A, B)) as made:
        for broker in made.brokers:
            broker.store.topics.create("t", read_queues=2, write_queues=2)
        yield made
        target(made).close_source()


def target(made):
    return NamesrvBrokerTarget(Endpoint(name_servers=tuple(made.addresses)))


def writer(made, schema=SCHEMA, *, without=(), **more):
    given = {"namesrv": ";".join(made.addresses), "topic": "t", "delivery": "at-least-once", **more}
    given = {name: value for name, value in given.items() if name not in without}
    return DefaultSource(given).writer(schema, False)


def test_a_write_says_that_it_is_at_least_once(made):
    assert writer(made)
    for more in ({"delivery": "exactly-once"}, {}):
        with pytest.raises(OptionError, match=r"neither fenced.*delivery=at-least-once") as caught:
            writer(made, without=() if more else ("delivery",), **more)
        assert caught.value.code == "OPTION_UNSUPPORTED"
    assert not {Capability.EXACTLY_ONCE, Capability.CREATE} & target(made).capabilities


REFUSED = (
    *("createIfMissing", "directoryMode", "retentionHours", "retentionBytes", "cleanTime"),
    *("txnAppId", "txnVersion", "onReplayDifference", "onBatchGap", "flush", "timerMaxDelay"),
)


@pytest.mark.parametrize("option", REFUSED)
def test_an_option_without_a_meaning_in_a_cluster_is_refused(made, option):
    with pytest.raises(OptionError, match=f"'{option}' is not supported") as caught:
        writer(made, **{option: "1"})
    assert caught.value.code == "OPTION_UNSUPPORTED"


def test_the_driver_checks_the_topic(made):
    with pytest.raises(TopicNotFoundError, match="mqadmin updateTopic"):
        writer(made, topic="another")
    for broker in made.brokers:
        broker.store.topics.update("t", perm=4)
    with pytest.raises(InvalidInputError, match="no queue of the topic 't'"):
        writer(made)


def test_the_driver_refuses_due_times_of_rocketmq_4(made):
    schema = StructType([BODY, StructField("deliverTimestamp", TimestampType())])
    if made.is_5:
        assert writer(made, schema)
        return
    with pytest.raises(UnsupportedError, match="RocketMQ 4"):
        writer(made, schema)


def test_a_name_server_that_is_not_there_is_reported_in_time(made):
    for server in made.name_servers:
        server.kill()
    with pytest.raises(TransportError, match="name server"):
        writer(made, **{"endpoint.timeout": "1s"})


def test_a_task_writes_only_to_the_cluster_of_the_driver(made):
    assert target(made).of_store("rocketmq:DefaultCluster").open_sink()
    with pytest.raises(StoreNotSharedError, match="not to rocketmq:other"):
        target(made).of_store("rocketmq:other").open_sink()


def test_a_checkpoint_of_another_store_is_refused(made, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "pyrocket-sink.json").write_text('{"version": 1, "store": "rocketmq:other"}')
    given = {
        "namesrv": ";".join(made.addresses),
        "topic": "t",
        "delivery": "at-least-once",
        "checkpointLocation": str(checkpoint),
    }
    with pytest.raises(SinkError, match="rocketmq:DefaultCluster") as caught:
        DefaultSource(given).streamWriter(SCHEMA, False)
    assert caught.value.code == "SINK_STORE_CHANGED"


def test_a_sink_of_a_cluster_publishes_nothing(made):
    sink = target(made).open_sink()
    for call in (sink.stage, sink.publish, sink.discard):
        with pytest.raises(UnsupportedError, match="no exactly-once writes"):
            call()
