"""The tables in `config/`, as RocketMQ 4 and 5 write them."""

import json
import os
import shutil

import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Store, TopicConfig
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.formats.checked_json import encode_own
from pyrocket.metadata.groups import GroupOffsets, Subscriptions
from pyrocket.metadata.service_cursors import DelayOffsets
from pyrocket.metadata.topics import Topics
from pyrocket.values.admin import GroupConfig

CONFIG = GOLDEN / CLEAN / "config"
TABLES = {
    "topics": lambda layout: Topics(layout, lambda: 0).table,
    "subscriptionGroup": lambda layout: Subscriptions(layout, lambda: 0).table,
    "consumerOffset": lambda layout: GroupOffsets(layout).table,
    "delayOffset": lambda layout: DelayOffsets(layout).table,
}
NO_TABLES = ['{"dataVersion":{"counter":7}}', '{"other":{}}', '{"offsets":{"a":1}}', '{"a":[]}']

TOPICS_5 = """{
	"dataVersion":{
		"counter":7,
		"stateVersion":3,
		"timestamp":5
	},
	"topicConfigTable":{
		"fifo":{
			"attributes":{
				"message.type":"FIFO"
			},
			"order":true,
			"perm":6,
			"readQueueNums":2,
			"topicFilterType":"MULTI_TAG",
			"topicName":"fifo",
			"topicSysFlag":1,
			"writeQueueNums":2
		}
	}
}"""

GROUPS_5 = """{
	"dataVersion":{
		"counter":7,
		"stateVersion":3,
		"timestamp":5
	},
	"forbiddenTable":{
		"old":{
			"t":1
		}
	},
	"subscriptionGroupTable":{
		"old":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":false,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":true,
			"consumeTimeoutMinute":15,
			"groupName":"old",
			"groupRetryPolicy":{
				"type":"CUSTOMIZED"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":3,
			"retryQueueNums":2,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""

OFFSETS_5 = """{
	"dataVersion":{
		"counter":7,
		"stateVersion":3,
		"timestamp":5
	},
	"groupTopicMap":{
		"old":["t"]
	},
	"offsetTable":{
		"t@old":{0:5,1:7
		}
	}
}"""


@pytest.fixture
def layout(tmp_path):
    (tmp_path / "config").mkdir()
    return Layout(tmp_path)


def copy_of_java(layout, name):
    text = (CONFIG / f"{name}.json").read_text()
    layout.config(name).write_text(text)
    return text


def always(queue_id, old, new):
    return True


def test_a_commit_for_one_queue_changes_only_its_number_in_rocketmqs_file(layout):
    text = copy_of_java(layout, "consumerOffset")
    offsets = GroupOffsets(layout)
    assert offsets.of("groupA", "TopicTest") == {0: 5, 1: 7}
    assert offsets.merge("groupA", "TopicTest", {1: 9}, always) == {0: 5, 1: 9}
    assert layout.config("consumerOffset").read_text() == text.replace("1:7", "1:9")


def test_commit_keeps_fields_of_rocketmq_5(layout):
    layout.config("consumerOffset").write_text(OFFSETS_5)
    GroupOffsets(layout).merge("new", "t", {0: 1}, always)
    text = OFFSETS_5.replace('"old":["t"]', '"old":["t"],\n\t\t"new":["t"]')
    text = text.replace("1:7\n\t\t}", '1:7\n\t\t},\n\t\t"t@new":{0:1\n\t\t}')
    assert layout.config("consumerOffset").read_text() == text


def test_unparsable_keys_of_the_offset_table_are_kept(layout):
    layout.config("consumerOffset").write_text('{"offsetTable":{"a@b@c":{0:1},"a":{0:2},"t@g":{}}}')
    offsets = GroupOffsets(layout)
    offsets.drop(group="c")
    offsets.drop(topic="a")
    assert offsets.all() == {("t", "g"): {}}
    offsets.drop(topic="t")
    table = fastjson.loads(layout.config("consumerOffset").read_text())["offsetTable"]
    assert table == {"a@b@c": {"0": 1}, "a": {"0": 2}}


def test_new_group_has_rocketmqs_default_settings(layout, clock):
    copy_of_java(layout, "subscriptionGroup")
    Subscriptions(layout, clock).create("mine")
    content = fastjson.loads(layout.config("subscriptionGroup").read_text())
    table = content["subscriptionGroupTable"]
    like = {**table["SELF_TEST_C_GROUP"], "groupName": "mine"}
    assert list(table["mine"].items()) == list(like.items())
    assert content["dataVersion"] == {"counter": 2, "timestamp": clock.now}


def test_group_settings_are_read(layout, clock):
    layout.config("subscriptionGroup").write_text(GROUPS_5)
    assert Subscriptions(layout, clock).all() == {"old": GroupConfig("old", False, 2, 3, fifo=True)}


def test_creating_and_deleting_a_group_keeps_fields_of_rocketmq_5(layout, clock):
    layout.config("subscriptionGroup").write_text(GROUPS_5)
    groups = Subscriptions(layout, clock)
    groups.create("new")
    groups.create("new")
    groups.remove("new")
    groups.remove("new")
    moved = f'"counter":9,\n\t\t"stateVersion":3,\n\t\t"timestamp":{clock.now}'
    text = GROUPS_5.replace('"counter":7,\n\t\t"stateVersion":3,\n\t\t"timestamp":5', moved)
    assert layout.config("subscriptionGroup").read_text() == text


def test_deleting_a_group_deletes_its_forbidden_topics(layout, clock):
    layout.config("subscriptionGroup").write_text(GROUPS_5)
    Subscriptions(layout, clock).remove("old")
    content = fastjson.loads(layout.config("subscriptionGroup").read_text())
    assert content["forbiddenTable"] == content["subscriptionGroupTable"] == {}


def test_topic_fields_that_only_rocketmq_uses_are_kept(layout, clock):
    layout.config("topics").write_text(TOPICS_5)
    Topics(layout, clock).put(TopicConfig("fifo", 4, 3, ordered=True))
    text = TOPICS_5.replace('"readQueueNums":2', '"readQueueNums":4')
    text = text.replace('"writeQueueNums":2', '"writeQueueNums":3')
    text = text.replace('"counter":7', '"counter":8').replace(
        '"timestamp":5', f'"timestamp":{clock.now}'
    )
    assert layout.config("topics").read_text() == text


@pytest.mark.parametrize(
    "entry",
    [
        '"a/b":{"perm":6,"readQueueNums":1,"writeQueueNums":1}',
        '"..":{"perm":6,"readQueueNums":1,"writeQueueNums":1}',
        '"t":{"perm":6,"readQueueNums":1,"writeQueueNums":2000000000}',
        '"t":{"perm":6,"readQueueNums":1e999,"writeQueueNums":1}',
        '"t":{"perm":6,"writeQueueNums":1}',
    ],
)
def test_invalid_topic_entry_is_damage(layout, clock, entry):
    layout.config("topics").write_text(f'{{"topicConfigTable":{{{entry}}}}}')
    with pytest.raises(StoreDamagedError, match=r"topics\.json"):
        Topics(layout, clock).all()


def test_saving_the_delay_offset_of_a_level_changes_only_this_level(layout):
    text = copy_of_java(layout, "delayOffset")
    offsets = DelayOffsets(layout)
    assert offsets.read() == {1: 1}
    offsets.save({1: 1})
    assert layout.config("delayOffset").read_text() == text
    offsets.save({3: 20})
    assert layout.config("delayOffset").read_text() == text.replace("1:1", "1:1,3:20")
    assert layout.config_backup("delayOffset").read_text() == text


def test_saving_delay_offsets_keeps_fields_of_rocketmq_5(layout):
    text = '{\n\t"dataVersion":{\n\t\t"counter":7\n\t},\n\t"offsetTable":{1:1\n\t}\n}'
    layout.config("delayOffset").write_text(text)
    DelayOffsets(layout).save({1: 2})
    assert layout.config("delayOffset").read_text() == text.replace("1:1", "1:2")


def test_groups_of_a_broker_store_continue_from_their_offsets(tmp_path):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / "store")
    with Store.open(root, read_only=True) as store:
        assert store.groups.committed("groupA", "TopicTest") == {0: 5, 1: 7}
        assert {"groupA", "TOOLS_CONSUMER"} <= set(store.groups.all())
        assert store.groups.topics("groupA") == ["%RETRY%groupA", "TopicTest"]
    with Store.open(root) as store:
        assert store.groups.commit("groupA", "TopicTest", {0: 14}) == {0: 14, 1: 7}


def without_topic(path, name):
    """Remove a topic, like a broker that loaded the table before the topic was created."""
    table = json.loads(Layout(path).config("topics").read_text())
    del table["topicConfigTable"][name]
    Layout(path).config("topics").write_text(json.dumps(table))


def test_a_topic_survives_a_rejected_broker_that_overwrites_the_table(path):
    with Store.open(path, create=True) as store:
        made = store.topics.create("made", read_queues=3, write_queues=2)
        without_topic(path, "made")
        assert store.topics.all() == {"made": made}
        store.topics.create("next")
        assert sorted(store.topics.all()) == ["made", "next"]
    table = json.loads(Layout(path).config("topics").read_text())["topicConfigTable"]
    assert (table["made"]["readQueueNums"], table["made"]["writeQueueNums"]) == (3, 2)


def test_topic_deleted_by_a_broker_stays_deleted(path):
    with Store.open(path, create=True) as store:
        store.topics.create("deleted")
        store.topics.create("stays")
    without_topic(path, "deleted")
    os.utime(path / "lock", ns=(0, 12345))
    with Store.open(path) as store:
        assert list(store.topics.all()) == ["stays"]
        store.topics.create("next")
        assert sorted(store.topics.all()) == ["next", "stays"]


@pytest.fixture
def copied(tmp_path):
    """The tables of a RocketMQ broker, each with its backup."""
    shutil.copytree(CONFIG, tmp_path / "config")
    for name in TABLES:
        file = tmp_path / "config" / f"{name}.json"
        shutil.copy(file, f"{file}.bak")
    return Layout(tmp_path)


@pytest.mark.parametrize("text", NO_TABLES)
@pytest.mark.parametrize("name", TABLES)
def test_a_json_file_that_lacks_its_table_is_damaged_and_its_backup_is_read(
    copied, name, text, caplog
):
    table = TABLES[name](copied)
    known = table.read()
    assert known
    copied.config(name).write_text(text)
    assert table.read() == known
    (record,) = caplog.records
    assert f"{name}.json cannot be parsed" in record.getMessage()
    assert f"using {name}.json.bak" in record.getMessage()
    copied.config_backup(name).unlink()
    with pytest.raises(StoreDamagedError, match="it is JSON, but has no object"):
        table.read()


@pytest.mark.parametrize("name", TABLES)
def test_table_without_entries_is_valid(copied, name, caplog):
    key = next(key for key in json.loads(as_json(copied.config(name))) if key.endswith("Table"))
    copied.config(name).write_text(f'{{"{key}":{{}}}}')
    assert TABLES[name](copied).read() == {}
    assert not caplog.records


def test_file_of_topic_ids_without_ids_is_damage(tmp_path):
    with Store.open(tmp_path, create=True) as store:
        store.topics.create("t")
    file = Layout(tmp_path).topic_ids
    file.write_bytes(encode_own(file, {"ended": {}}))
    opened = Store.open(tmp_path, read_only=True)
    with opened as store, pytest.raises(StoreDamagedError, match="'ids' is missing"):
        store.topics.all()


def as_json(path):
    """The file converted to plain JSON, without integer keys."""
    return json.dumps(fastjson.loads(path.read_text()))
