"""Topics are created, changed, deleted and recreated."""

import itertools
import re
from dataclasses import replace

import pytest
from pyrocket import PyrocketError, Store, TopicConfig
from pyrocket.disk import io
from pyrocket.errors import InvalidInputError, MessageError, TopicNameError, TopicNotFoundError
from pyrocket.formats import fastjson
from support.dying import DeathError, DyingAt
from support.stores import SMALL, batch, bodies, message, numbered

CONSUMER_OFFSETS = """{
	"offsetTable":{
		"t@groupA":{0:5,1:7
		},
		"%RETRY%groupA@groupA":{0:0
		},
		"tt@groupA":{0:1}
	}
}"""


def test_topics_are_saved_in_rocketmqs_file(store, path):
    store.topics.create("t", read_queues=3, write_queues=2, perm=4)
    text = (path / "config" / "topics.json").read_text()
    assert re.search(r'^\t"topicConfigTable":\{$', text, re.MULTILINE)
    assert fastjson.loads(text)["topicConfigTable"]["t"] == {
        "order": False,
        "perm": 4,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "t",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }


def test_the_order_flag_of_a_topic_is_rocketmqs(store, path, open_store):
    assert store.topics.create("t", ordered=True).ordered
    saved = fastjson.loads((path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert saved["t"]["order"] is True
    store.topics.update("t", perm=4)
    assert open_store().topics.get("t").ordered
    assert not store.topics.update("t", ordered=False).ordered
    with pytest.raises(InvalidInputError):
        store.topics.update("t", ordered="yes")


def test_existing_topic_is_returned_unchanged_or_rejected(store):
    made = store.topics.create("t", read_queues=2, write_queues=2)
    assert store.topics.create("t", read_queues=9, write_queues=9) == made
    with pytest.raises(InvalidInputError) as caught:
        store.topics.create("t", exist_ok=False)
    assert caught.value.code == "TOPIC_EXISTS"


def test_illegal_topic_names_are_rejected_and_nothing_is_created(store, path):
    makers = store.topics.create, lambda topic: store.append(message(topic=topic))
    names = ["", "a b", "../up", "a.b", "ä", "x" * 128, "TBW102"]
    for make, name in itertools.product(makers, names):
        with pytest.raises(TopicNameError) as caught:
            make(name)
        assert caught.value.code == "TOPIC_ILLEGAL"
    assert store.topics.all() == {}
    assert list((path / "consumequeue").iterdir()) == []


def test_error_for_missing_topic_suggests_the_nearest_name(store):
    store.topics.create("orders")
    with pytest.raises(TopicNotFoundError, match="Did you mean 'orders'"):
        store.offsets("order")


def test_first_send_creates_a_topic_of_four_queues(store):
    store.append(message(queue_id=None))
    topic = store.topics.get("t")
    assert (topic.read_queues, topic.write_queues) == (4, 4)


def test_without_auto_create_a_send_to_an_unknown_topic_is_rejected(open_store):
    strict = open_store(config=replace(SMALL, auto_create_topics=False))
    for send in (
        lambda: strict.append(message()),
        lambda: strict.append_batch(batch([b"x"]), topic="t"),
    ):
        with pytest.raises(TopicNotFoundError):
            send()
    assert strict.topics.all() == {}


@pytest.mark.parametrize("queues", [0, -1, 1025])
def test_invalid_queue_counts_are_rejected(store, queues):
    with pytest.raises(InvalidInputError) as caught:
        store.topics.create("t", read_queues=queues)
    assert caught.value.code == "QUEUE_COUNT"
    assert store.topics.all() == {}


def test_topic_without_write_permission_rejects_sends(store):
    store.topics.create("t", perm=4)
    with pytest.raises(PyrocketError) as caught:
        store.append(message())
    assert caught.value.code == "TOPIC_NOT_WRITABLE"
    store.topics.update("t", perm=6)
    store.append(message())


def test_queues_added_to_a_topic_are_written_and_read(store, open_store):
    store.topics.create("t", read_queues=1, write_queues=1)
    reader = open_store(read_only=True)
    with pytest.raises(PyrocketError) as caught:
        store.append(message(queue_id=2))
    assert caught.value.code == "QUEUE_NOT_FOUND"
    store.topics.update("t", read_queues=3, write_queues=3)
    store.append(message(queue_id=2))
    assert bodies(reader) == {0: [], 1: [], 2: [b"x"]}


def test_a_removed_write_queue_is_readable_as_long_as_it_is_a_read_queue(store):
    store.topics.create("t", read_queues=2, write_queues=2)
    store.append(message(b"old", queue_id=1))
    store.topics.update("t", write_queues=1)
    with pytest.raises(PyrocketError) as caught:
        store.append(message(queue_id=1))
    assert caught.value.code == "QUEUE_NOT_FOUND"
    assert bodies(store)[1] == [b"old"]
    store.topics.update("t", read_queues=1)
    assert bodies(store) == {0: []}
    # Offsets of the removed queue, such as those of a planned micro-batch, can still be read.
    assert [one.body for one in store.read("t", 1, 0)] == [b"old"]
    with pytest.raises(PyrocketError) as caught:
        store.read("t", 2, 0)
    assert caught.value.code == "QUEUE_NOT_FOUND"


def test_recreated_topic_continues_its_offsets_under_a_new_id(store, open_store):
    store.topics.create("t", read_queues=2, write_queues=2)
    store.append_batch(batch(numbered(13), 1), topic="t")
    old_id = store.topics.get("t").topic_id
    store.topics.delete("t")
    with pytest.raises(TopicNotFoundError):
        store.offsets("t")
    new = store.topics.create("t", read_queues=2, write_queues=2)
    assert new.topic_id
    assert new.topic_id != old_id
    assert store.min_offset("t", 1) == store.max_offset("t", 1) == 13
    assert store.append(message(b"new", queue_id=1)).queue_offset == 13
    assert store.append(message(b"new", queue_id=0)).queue_offset == 0
    for one in (store, open_store(read_only=True)):
        assert bodies(one) == {0: [b"new"], 1: [b"new"]}


def test_a_writer_closes_its_files_of_a_topic_whose_deletion_was_interrupted(
    open_store, monkeypatch
):
    """The deletion failed after it had moved the queues, whose files are no longer read."""
    first, second = open_store(), open_store()
    first.topics.create("t", read_queues=1, write_queues=1)
    first.append(message(b"old"))
    with monkeypatch.context() as patch:
        patch.setattr(io, "remove_tree", lambda folder: (_ for _ in ()).throw(OSError(5, "EIO")))
        with pytest.raises(PyrocketError):
            second.topics.delete("t")
    second.topics.delete("t")
    second.topics.create("t", read_queues=1, write_queues=1)
    assert first.append(message(b"new")).queue_offset == 1
    assert first.append(message(b"newer")).queue_offset == 2
    assert bodies(first) == bodies(second) == {0: [b"new", b"newer"]}


def test_deleting_a_topic_deletes_no_group_offsets_of_other_topics(store, path):
    offsets = path / "config" / "consumerOffset.json"
    store.topics.create("t")
    store.topics.create("tt")
    offsets.write_text(CONSUMER_OFFSETS)
    store.topics.delete("t")
    text = offsets.read_text()
    assert fastjson.loads(text)["offsetTable"] == {
        "%RETRY%groupA@groupA": {"0": 0},
        "tt@groupA": {"0": 1},
    }
    assert re.search(r"\{\s*0:0\s*\}", text), "integer keys are written as RocketMQ does"
    assert (path / "config" / "consumerOffset.json.bak").read_text() == CONSUMER_OFFSETS


def test_deleting_a_topic_deletes_all_its_files(store, path):
    store.append(message())
    store.topics.delete("t")
    assert list((path / "consumequeue").iterdir()) == []
    assert list((path / "pyrocket" / "tmp").iterdir()) == []


def test_messages_of_an_interrupted_topic_deletion_never_reappear(open_store, path, monkeypatch):
    """In each run, one operation of a deletion fails; old messages never reappear."""
    for failing in range(100):
        store = open_store()
        store.topics.create("t", read_queues=1, write_queues=1)
        old = store.append(message(b"old")).queue_offset
        with monkeypatch.context() as patch:
            left = [failing]
            for name in ("rename", "sync_directory", "write_at"):
                patch.setattr(io, name, _failing(getattr(io, name), left))
            try:
                store.topics.delete("t")
                done = True
            except PyrocketError:
                done = False
        if "t" in store.topics.all():
            found = bodies(store)[0]
            assert found in ([], [b"old"])
            store.topics.delete("t")
        store.topics.create("t", read_queues=1, write_queues=1)
        assert bodies(store)[0] == []
        assert store.append(message(b"new")).queue_offset == old + 1
        store.topics.delete("t")
        store.close()
        if done:
            return
    raise AssertionError("the deletion never completed")


def _failing(real, left):
    def operation(*arguments):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(5, "Input/output error")
        return real(*arguments)

    return operation


def test_pyrockets_table_or_the_backup_is_read_instead_of_a_corrupt_topics_file(
    store, path, open_store
):
    store.topics.create("a")
    store.topics.create("b")
    (path / "config" / "topics.json").write_text('{"half')
    assert set(open_store(read_only=True).topics.all()) == {"a", "b"}
    (path / "pyrocket" / "topics.json").unlink()
    assert set(open_store(read_only=True).topics.all()) == {"a"}
    (path / "config" / "topics.json.bak").write_text("")
    with pytest.raises(PyrocketError, match=r"topics\.json") as caught:
        open_store(read_only=True).topics.all()
    assert caught.value.code == "STORE_DAMAGED"


def test_topics_without_an_id_have_an_empty_id_in_a_read_only_store(path):
    with Store.open(path, create=True, config=SMALL) as made:
        made.topics.create("t", read_queues=1, write_queues=1)
    (path / "pyrocket" / "topics.json").unlink()
    with Store.open(path, read_only=True) as reader:
        assert reader.topics.get("t").topic_id == ""


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_topics_of_delayed_messages_cannot_be_deleted_or_changed(store, name):
    store.topics.create("t")
    store.append(message(delay_level=3))
    store.append(message(deliver_at_ms=store.now() + 60_000))
    with pytest.raises(TopicNameError):
        store.topics.delete(name)
    with pytest.raises(TopicNameError):
        store.topics.update(name, read_queues=1)
    assert name in store.topics.all()


def table_version(path):
    text = (path / "config" / "topics.json").read_text()
    return fastjson.loads(text)["dataVersion"]["counter"]


def test_create_many_writes_the_table_once_for_all_topics(store, path):
    store.topics.create("t-1", read_queues=7, write_queues=7)
    before = table_version(path)
    wanted = [TopicConfig(f"t-{number}", 2, 3) for number in range(500)]
    made = store.topics.create_many(wanted)
    assert table_version(path) == before + 1
    assert [topic.name for topic in made] == [topic.name for topic in wanted]
    assert made[1].read_queues == 7, "an existing topic is unchanged"
    assert len({topic.topic_id for topic in made}) == len(made)
    assert store.topics.all() == {topic.name: topic for topic in made}
    assert store.topics.create_many(wanted) == made
    assert table_version(path) == before + 1, "nothing was new"
    with Store.open(path, read_only=True) as other:
        assert other.topics.all() == store.topics.all()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (TopicConfig("a b", 1, 1), "TOPIC_ILLEGAL"),
        (TopicConfig("b", 0, 1), "QUEUE_COUNT"),
        (TopicConfig("b", 1, 1, perm=64), "TOPIC_PERMISSION"),
        (TopicConfig("b", 1, 1, perm=-1), "TOPIC_PERMISSION"),
        (TopicConfig("there", 1, 1), "TOPIC_EXISTS"),
    ],
)
def test_create_many_creates_all_topics_or_none(store, wrong, code):
    store.topics.create("there")
    with pytest.raises(PyrocketError) as refused:
        store.topics.create_many([TopicConfig("a", 1, 1), wrong], exist_ok=False)
    assert refused.value.code == code
    assert list(store.topics.all()) == ["there"]


def test_topics_of_create_many_are_visible_to_other_open_stores(store, path):
    with Store.open(path) as other:
        assert other.topics.all() == {}
        store.topics.create_many([TopicConfig(name, 1, 1) for name in ("a", "b")])
        assert list(other.topics.all()) == ["a", "b"]
        other.append(message(b"x", "b"))


def test_the_error_for_a_missing_topic_lists_only_a_few_of_many_topics(store):
    store.topics.create_many([TopicConfig(f"t-{number:04}", 1, 1) for number in range(300)])
    with pytest.raises(TopicNotFoundError) as refused:
        store.topics.get("?")
    assert "'t-0009' and 290 more." in str(refused.value)
    assert len(str(refused.value)) < 400


def test_the_permissions_are_the_bits_of_rocketmq(store):
    """Source: `PermName`: 4 reads, 2 writes, 1 inherits."""
    for perm in range(8):
        assert store.topics.create(f"t{perm}", perm=perm).perm == perm
    with pytest.raises(InvalidInputError):
        store.topics.create("t8", perm=8)


CHANGES = {
    "create": lambda topics: topics.create("new"),
    "shrink": lambda topics: topics.update("t", read_queues=1, write_queues=1),
    "delete": lambda topics: topics.delete("t"),
}


def dies_in(change, step):
    """Simulate the death of the process at a disk operation; False if there are fewer."""
    with pytest.MonkeyPatch.context() as patch:
        DyingAt(patch, step, half=False)
        try:
            change()
        except DeathError:
            return True
    return False


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_writers_see_a_change_of_topics_whose_writer_died(tmp_path, change):
    config = replace(SMALL, auto_create_topics=False)
    for step in itertools.count():
        with Store.open(tmp_path / str(step), create=True, config=config) as store:
            store.topics.create("t", read_queues=4, write_queues=4)
            store.append(message(queue_id=3))
            with Store.open(store.path, config=config) as other:
                died = dies_in(lambda topics=other.topics: change(topics), step)
            for topic, queue_id in ("t", 0), ("t", 3), ("new", 0):
                known = store.topics.all().get(topic)
                if known and queue_id < known.write_queues:
                    store.append(message(topic=topic, queue_id=queue_id))
                else:
                    with pytest.raises((TopicNotFoundError, MessageError)):
                        store.append(message(topic=topic, queue_id=queue_id))
        if not died:
            break
    assert step > 5
