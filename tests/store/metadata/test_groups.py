"""Offsets of consumer groups are committed, read, reset and deleted by several processes."""

import json
from itertools import product

import numpy as np
import pytest
from pyrocket import AtTime, GroupConfig, Store
from pyrocket.base.config import parse_delay_levels
from pyrocket.disk import io
from pyrocket.errors import (
    GroupNameError,
    GroupNotFoundError,
    InvalidInputError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.formats import fastjson
from pyrocket.values.admin import Backoff
from support.forked import Forked
from support.producers import COMMITS, commit_often
from support.stores import SMALL, batch, numbered, overwrite, reboot


@pytest.fixture
def queues(store):
    """Ten messages in queue 0 of topic t, five in queue 1, none in queue 2."""
    store.topics.create("t", read_queues=3, write_queues=3)
    store.append_batch(batch(numbered(15), [0] * 10 + [1] * 5), topic="t")
    return store


def test_a_group_without_commits_has_no_offsets(queues):
    assert queues.groups.committed("g", "t") == {}
    assert queues.groups.all() == {}
    assert queues.groups.topics("g") == []


def test_a_commit_is_visible_to_all_processes(queues, open_store):
    reader, other = open_store(read_only=True), open_store()
    assert queues.groups.commit("g", "t", {1: 5}) == {1: 5}
    assert other.groups.commit("g", "t", {0: 3}) == {0: 3, 1: 5}
    for store in (queues, reader, other):
        assert store.groups.committed("g", "t") == {0: 3, 1: 5}
        assert store.groups.all() == {"g": GroupConfig("g")}
        assert store.groups.topics("g") == ["t"]


def test_numpy_offsets_are_written_as_json_numbers(queues, path):
    queues.groups.commit("g", "t", {np.int32(0): np.int64(3)})
    assert '"t@g":{0:3\n' in (path / "config/consumerOffset.json").read_text()
    with pytest.raises(InvalidInputError, match="NOT_A_NUMBER"):
        queues.groups.commit("g", "t", {0: 4.0})


def test_the_first_commit_also_creates_the_group_for_brokers(queues, path):
    queues.groups.commit("g", "t", {0: 3})
    queues.groups.commit("g", "t", {0: 4})
    content = fastjson.loads((path / "config/subscriptionGroup.json").read_text())
    assert list(content["subscriptionGroupTable"]) == ["g"]
    assert content["dataVersion"]["counter"] == 1


def test_a_group_can_be_created_without_a_commit(queues):
    assert queues.groups.create("g") == queues.groups.create("g") == GroupConfig("g")
    assert queues.groups.get("g") == GroupConfig("g")


def test_a_late_commit_is_ignored(queues, path):
    queues.groups.commit("g", "t", {0: 7, 1: 1})
    assert queues.groups.commit("g", "t", {0: 5, 1: 2}) == {0: 7, 1: 2}
    inode = (path / "config/consumerOffset.json").stat().st_ino
    assert queues.groups.commit("g", "t", {0: 7, 1: 1}) == {0: 7, 1: 2}
    assert (path / "config/consumerOffset.json").stat().st_ino == inode, "nothing to write"


def test_a_commit_moves_backwards_only_on_request(queues):
    queues.groups.commit("g", "t", {0: 7})
    assert queues.groups.commit("g", "t", {0: 5}, backwards=True) == {0: 5}


@pytest.mark.parametrize("offset", [-1, 11])
@pytest.mark.parametrize("change", ["commit", "reset"])
def test_out_of_range_offsets_are_rejected_and_nothing_is_saved(queues, offset, change):
    with pytest.raises(OffsetOutOfRangeError, match="queue 0 of 't'"):
        getattr(queues.groups, change)("g", "t", {1: 2, 0: offset})
    assert queues.groups.all() == {}


def test_the_end_of_a_queue_may_be_committed(queues):
    assert queues.groups.commit("g", "t", {0: 10, 1: 5, 2: 0}) == {0: 10, 1: 5, 2: 0}


def test_unknown_topics_and_queues_are_rejected(queues):
    for change in (queues.groups.commit, queues.groups.reset):
        with pytest.raises(TopicNotFoundError):
            change("g", "tt", {0: 0})
        with pytest.raises(QueueNotFoundError):
            change("g", "t", {3: 0})
    assert queues.groups.all() == {}


def test_illegal_group_names_are_rejected(queues):
    groups = queues.groups
    makers = (
        groups.create,
        lambda name: groups.commit(name, "t", {0: 1}),
        lambda name: groups.reset(name, "t", "latest"),
    )
    for make, name in product(makers, ["", "a b", "a@b", "a/b", "a\n", "ä", "x" * 256]):
        with pytest.raises(GroupNameError) as caught:
            make(name)
        assert caught.value.code == "GROUP_ILLEGAL"


@pytest.mark.parametrize("name", ["x" * 255, "CID_a|b%C-9", "%RETRY%g"])
def test_every_name_that_rocketmq_accepts_is_accepted(queues, name):
    assert queues.groups.commit(name, "t", {0: 1}) == queues.groups.committed(name, "t") == {0: 1}


def test_a_reset_moves_backwards_and_forwards(queues):
    queues.groups.commit("g", "t", {0: 7})
    assert queues.groups.reset("g", "t", "earliest") == {0: 0, 1: 0, 2: 0}
    assert queues.groups.reset("g", "t", "latest") == {0: 10, 1: 5, 2: 0}
    assert queues.groups.reset("g", "t", {1: 3}) == {0: 10, 1: 3, 2: 0}


def test_a_reset_to_a_time_starts_at_the_first_message_stored_then_or_later(queues, clock):
    clock.now += 60_000
    queues.append_batch(batch(numbered(4), 1), topic="t")
    groups = queues.groups
    assert groups.reset("g", "t", AtTime(clock.now)) == {0: 10, 1: 5, 2: 0}
    assert groups.reset("g", "t", AtTime(clock.now + 1)) == {0: 10, 1: 9, 2: 0}
    assert groups.reset("g", "t", AtTime(0)) == {0: 0, 1: 0, 2: 0}


def test_the_queues_of_a_recreated_topic_start_at_the_old_ends(queues):
    queues.topics.delete("t")
    queues.topics.create("t", read_queues=1, write_queues=1)
    assert queues.groups.reset("g", "t", "earliest") == {0: 10}
    assert queues.groups.commit("g", "t", {0: 9}, backwards=True) == {0: 9}
    with pytest.raises(OffsetOutOfRangeError):
        queues.groups.reset("g", "t", {0: 9})


def test_deleting_a_topic_deletes_its_offsets_but_not_the_group(queues):
    queues.groups.commit("g", "t", {0: 7})
    queues.topics.delete("t")
    assert queues.groups.committed("g", "t") == {}
    assert list(queues.groups.all()) == ["g"]


def test_deleting_a_group_deletes_only_its_offsets(queues, path):
    queues.topics.create("u")
    for group in ("g", "gg"):
        queues.groups.commit(group, "t", {0: 7})
        queues.groups.commit(group, "u", {0: 0})
    queues.groups.delete("g")
    assert list(queues.groups.all()) == ["gg"]
    assert queues.groups.committed("g", "t") == {}
    assert queues.groups.committed("gg", "t") == {0: 7}
    assert "g@" not in (path / "config/consumerOffset.json").read_text().replace("gg@", "")


def test_the_error_for_a_missing_group_suggests_the_most_similar_name(queues):
    queues.groups.create("payments")
    for use in (queues.groups.get, queues.groups.delete):
        with pytest.raises(GroupNotFoundError, match="Did you mean 'payments'"):
            use("payment")


def test_a_recovery_lowers_offsets_after_a_truncated_end(open_store, path):
    """The end of the log was not durable: its queue offsets are assigned to other messages."""
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    first = store.append_batch(batch(numbered(2), 0), topic="t")
    store.append_batch(batch(numbered(6), 0), topic="t")
    store.groups.commit("g", "t", {0: 8})
    store.groups.commit("before", "t", {0: 1})
    store.close(clean=False)
    (log,) = [file for file in (path / "commitlog").iterdir() if file.name.endswith("4096")]
    overwrite(log, bytes(4096 - first.log_end % 4096), first.log_end % 4096)
    reboot(path)
    again = open_store()
    assert again.max_offset("t", 0) == 2
    assert again.groups.committed("g", "t") == {0: 2}
    assert again.groups.committed("before", "t") == {0: 1}


def test_a_commit_on_a_full_disk_raises_an_error_and_changes_nothing(queues, monkeypatch):
    queues.groups.commit("g", "t", {0: 1})
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", lambda *_: (_ for _ in ()).throw(OSError(28, "ENOSPC")))
        with pytest.raises(StoreUnavailableError) as caught:
            queues.groups.commit("g", "t", {0: 2})
    assert caught.value.code == "WRITE_FAILED"
    assert queues.groups.committed("g", "t") == {0: 1}
    assert queues.groups.commit("g", "t", {0: 2}) == {0: 2}


def test_concurrent_commits_of_several_processes_are_all_saved(tmp_path):
    root = str(tmp_path / "store")
    with Store.open(root, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=4, write_queues=4)
        for queue_id in range(4):
            store.append_batch(batch(numbered(COMMITS), queue_id), topic="t")
        for job in [Forked(commit_often, root, number) for number in range(4)]:
            job.communicate(60)
            assert job.returncode == 0
        assert store.groups.committed("shared", "t") == dict.fromkeys(range(4), COMMITS)
        for number in range(4):
            assert store.groups.committed(f"own{number}", "t") == {0: COMMITS}


def test_the_default_delays_are_those_of_rocketmq():
    text = "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert Backoff().delays_ms == parse_delay_levels(text)


@pytest.mark.parametrize("delays", [(3_000,), (3_000, 4_000), (1_000, 5_000, 10_000)])
def test_delays_are_stored_where_rocketmq_and_older_releases_look_for_them(tmp_path, delays):
    """RocketMQ waits for entry n + 2 of its list, or for the last, after n failed retries."""
    with Store.open(tmp_path, create=True) as store:
        store.groups.create("g")
        store.groups.update("g", backoff=Backoff(delays))
        assert store.groups.all()["g"].backoff.delays_ms == delays
    table = json.loads((tmp_path / "config/subscriptionGroup.json").read_text())
    policy = table["subscriptionGroupTable"]["g"]["groupRetryPolicy"]
    assert policy["type"] == "CUSTOMIZED"
    java = policy["customizedRetryPolicy"]["next"]
    waits = [java[min(n + 2, len(java) - 1)] for n in range(len(delays))]
    assert (*waits,) == delays


@pytest.mark.parametrize(
    ("java", "delays"), [([5], (5,)), ([5, 6], (6,)), ([5, 6, 7], (7,)), ([1, 5, 3, 4], (3, 4))]
)
def test_a_list_of_rocketmq_is_read_as_rocketmq_obeys_it(tmp_path, java, delays):
    own = {"customizedRetryPolicy": {"next": java}, "type": "CUSTOMIZED"}
    assert backoff_of(tmp_path, own).delays_ms == delays


def backoff_of(root, policy):
    """Return the delays of a group that has this policy in RocketMQ's file."""
    with Store.open(root, create=True) as store:
        store.groups.create("g")
    path = root / "config/subscriptionGroup.json"
    table = json.loads(path.read_text())
    table["subscriptionGroupTable"]["g"]["groupRetryPolicy"] = policy
    path.write_text(json.dumps(table))
    with Store.open(root) as store:
        return store.groups.all()["g"].backoff


def test_a_growing_delay_has_the_defaults_of_rocketmq(tmp_path):
    """Source: `ExponentialRetryPolicy`: 5 s, doubled each time, at most 2 h."""
    found = backoff_of(tmp_path, {"type": "EXPONENTIAL"})
    assert (found.initial_ms, found.multiplier, found.max_ms) == (5_000, 2, 7_200_000)
