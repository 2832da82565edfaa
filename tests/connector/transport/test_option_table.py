"""The table of `OPTIONS.md` about `namesrv` says what a query does."""

import pytest
from pyrocket.errors import OptionError, PyrocketError
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.option import READS, SINK
from support.option_manual import SECTIONS, has_meaning
from support.rocketmq_cluster import rocketmq
from support.transports import namesrv_target

SCHEMA = default_columns(kafka=False, headers=False, text=False)
EXAMPLES = {
    "path": {"path": "/store"},
    "endpoint": {"endpoint": "127.0.0.1:1"},
    "view": {"view": "scheduled"},
    "onDamage": {"view": "commitlog", "onDamage": "skip"},
    "badRecordsTopic": {"badRecordsTopic": "bad", "valueFormat": "json", "valueSchema": "a INT"},
    "createIfMissing": {"createIfMissing": "true"},
    "keys": {"keys": "k"},
    "msgId": {"msgId": "0"},
    "commitToGroup": {"commitToGroup": "g"},
    "brokerAddresses": {"brokerAddresses": "broker-b=127.0.0.1:1"},
    "readFrom": {"readFrom": "any"},
    "removedBrokers": {"removedBrokers": "broker-b"},
    "endpoint.timeout": {"endpoint.timeout": "10s"},
    "group": {"group": "TOOLS_CONSUMER", "startingOffsets": "committed"},
}
OPTIONS = {option.name: option for options in SECTIONS.values() for option in options}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with rocketmq(tmp_path_factory.mktemp("rocketmq")) as made:
        made.brokers[0].store.topics.create("t")
        yield made
        namesrv_target(made).close_source()


def without_meaning():
    return {
        name
        for name, option in OPTIONS.items()
        if option.queries != (SINK,) and not has_meaning(option, "namesrv")
    }


def test_every_option_of_a_read_without_a_meaning_has_an_example():
    assert without_meaning() < EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_option_without_a_meaning_is_refused_by_name(made, name):
    given = {"namesrv": made.addresses[0], "topic": "t", **EXAMPLES[name]}
    source = DefaultSource(given)

    def begin():
        if OPTIONS[name].queries[0] == READS[0]:
            source.reader(SCHEMA).partitions()
        else:
            source.streamReader(SCHEMA).initialOffset()

    if name in without_meaning():
        with pytest.raises(OptionError, match=f"{name}|view") as caught:
            begin()
        assert isinstance(caught.value, PyrocketError)
        assert caught.value.code in ("OPTION_UNSUPPORTED", "OPTION_CONFLICT")
    else:
        begin()
