"""The views `topics` and `groups`."""

import shutil
from datetime import datetime, timezone

import pytest
from pyrocket import VIEW_COLUMNS, Store
from pyrocket.errors import GroupNotFoundError
from pyrocket.tools.verify.verify import verify
from support.stores import batch, filled, message, numbered

OFFSETS = "config/consumerOffset.json"


def table(store, view, **options):
    (part,) = store.views.plan(view, **options)
    names = [*VIEW_COLUMNS[view]]
    return [row for batch in store.views.scan(part, names) for row in batch.to_pylist()]


def at(ms):
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def test_lag_is_counted_from_the_committed_offset(aged):
    aged.groups.commit("billing", "t", {0: 40})
    (row,) = table(aged, "groups")
    behind = aged.read("t", 0, 40, 100)
    assert row == {
        "consumerGroup": "billing",
        "topic": "t",
        "queueId": 0,
        "committedOffset": 40,
        "minOffset": 0,
        "maxOffset": 100,
        "lag": 60,
        "lagBytes": sum(one.store_size for one in behind),
        "lost": 0,
        "beyondEnd": 0,
        "nextStoreTimestamp": at(behind[0].store_timestamp),
    }


def test_a_committed_offset_beyond_the_end_of_its_queue_is_shown_until_it_is_corrected(path):
    """The store was restored from a copy that is older than its offset table."""
    store = filled(path, count=30)
    store.close()
    shutil.copytree(path, path.with_name("copy"))
    with Store.open(path) as store:
        store.append_batch(batch(numbered(20), 0), topic="t")
        store.groups.commit("billing", "t", {0: 50})
    shutil.copy(path / OFFSETS, path.with_name("copy") / OFFSETS)
    with Store.open(path.with_name("copy")) as store:
        (row,) = table(store, "groups")
        assert (row["maxOffset"], row["lag"], row["lost"], row["beyondEnd"]) == (30, 0, 0, 20)
        (finding,) = verify(path.with_name("copy")).findings
        assert (finding.code, finding.repairable) == ("GROUP_OFFSET", False)
        assert store.groups.commit("billing", "t", {0: 30}) == {0: 30}
        assert table(store, "groups")[0]["beyondEnd"] == 0
    assert verify(path.with_name("copy")).findings == ()


def test_a_group_without_commits_has_one_row(store):
    store.groups.create("new")
    (row,) = table(store, "groups")
    assert (row["consumerGroup"], row["topic"]) == ("new", None)


def test_the_table_can_be_limited_to_one_group(store):
    store.append(message())
    for group in ("one", "two"):
        store.groups.commit(group, "t", {0: 1})
    assert {row["consumerGroup"] for row in table(store, "groups", group="two")} == {"two"}
    with pytest.raises(GroupNotFoundError):
        table(store, "groups", group="three")


def test_a_deleted_topic_with_remaining_files_is_shown(store, path):
    store.append(message(topic="t"))
    store.append(message(topic="u"))
    (path / "consumequeue/ghost/3").mkdir(parents=True)
    rows = {row["topic"]: row for row in table(store, "topics")}
    assert (rows["t"]["messages"], rows["t"]["readQueues"], rows["t"]["perm"]) == (1, 4, 6)
    assert (rows["ghost"]["perm"], rows["ghost"]["queues"]) == (None, [])


def test_a_topic_whose_messages_have_all_expired_keeps_its_offsets(path, open_store):
    store = filled(path, count=0)
    store.topics.create("idle", read_queues=1, write_queues=1)
    store.append(message(topic="idle", queue_id=0))
    for number in range(200):
        store.append(message(b"%d" % number * 30, queue_id=0))
    store.clean(total_bytes=8192)
    (row,) = (one for one in table(store, "topics") if one["topic"] == "idle")
    (queue,) = row["queues"]
    assert (queue["minOffset"], queue["maxOffset"], row["messages"]) == (1, 1, 0)
    assert row["firstStoreTimestamp"] is queue["lastStoreTimestamp"] is None
