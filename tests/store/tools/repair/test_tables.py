"""Damage to topics and groups is found, and each remedy works."""

import json
import shutil

import pytest
from pyrocket import Store
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.report import Severity
from pyrocket.tools.verify.verify import verify
from support.damage import make
from support.stores import SMALL, batch, message, numbered
from support.table_damage import GROUPS, OFFSETS, OWN, TOPICS, file_for, folder_for


@pytest.fixture
def sound(path, clock):
    make(path, clock).close()
    return path


def copied(path):
    """Copy the store. The copy has a new `lock` file, so a broker may have changed its topics."""
    return shutil.copytree(path, path.parent / "copy")


def in_table(path):
    """Topic → read and write queues, as RocketMQ would read them."""
    table = json.loads((path / TOPICS).read_text())["topicConfigTable"]
    return {name: (one["readQueueNums"], one["writeQueueNums"]) for name, one in table.items()}


@pytest.mark.parametrize("name", [GROUPS, OFFSETS, TOPICS, *OWN[:3]])
def test_removing_a_broken_file_as_its_remedy_requires_makes_the_store_usable(sound, name):
    """A repair then restores the topics."""
    for end in ("", ".bak"):
        if end == "" or (sound / f"{name}.bak").exists():
            (sound / f"{name}{end}").write_text("xx")
    (finding,) = [one for one in verify(sound).findings if one.code == "CONFIG_BROKEN"]
    assert finding.file == name
    assert "Restore it" in finding.fix
    ways = ("remove it", "delete it", "without the file and its .bak")
    assert any(way in finding.fix for way in ways)
    for end in ("", ".bak"):
        (sound / f"{name}{end}").unlink(missing_ok=True)
    repair(sound)
    with Store.open(sound) as store:
        store.append(message(b"on", "t", 0, delay_level=1))
        store.groups.commit("new", "t", {0: 1})
    assert verify(sound).ok


def test_a_broken_table_does_not_hide_other_findings(sound):
    """A repair does not rebuild files that depend on the broken table."""
    (sound / OWN[1]).write_text("xx")
    (sound / "commitlog/x.tmp").touch()
    file = sound / "consumequeue/t/0/00000000000000000200"
    file.write_bytes(file.read_bytes()[:30])
    found = {one.code: one for one in verify(sound).findings}
    assert set(found) >= {"CONFIG_BROKEN", "FOREIGN_FILE", "QUEUE_FILE_LENGTH"}
    assert found["QUEUE_FILE_LENGTH"].fix.startswith("Repair or restore the broken tables; then ")
    done = repair(sound)
    assert [action.kind for action in done.actions] == ["quarantine"]
    (sound / OWN[1]).unlink()
    repair(sound)
    assert verify(sound).ok


def test_messages_of_unknown_deleted_topics_are_not_reported(path, clock):
    with make(path, clock) as store:
        store.topics.delete("t")
    (path / OWN[1]).write_text("xx")
    assert set(verify(path).counts) == {"CONFIG_BROKEN"}


@pytest.mark.parametrize("place", ["store", "copy"])
def test_a_repair_from_the_backup_restores_all_topics_and_queues(path, clock, place):
    """The backup is older than the table: it lacks the last topic, or queues of that topic."""
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        store.topics.create("pay", read_queues=3, write_queues=3)
        store.append_batch(batch(numbered(20), 0), topic="pay")
        store.topics.create("quiet", read_queues=5, write_queues=5)
        store.topics.update("pay", read_queues=4)
    root = path if place == "store" else copied(path)
    expected = in_table(root)
    assert expected == {"orders": (2, 2), "pay": (4, 3), "quiet": (5, 5)}
    (root / TOPICS).write_text("{nothing")
    assert "CONFIG_TOPIC_MISSING" in verify(root).counts
    repair(root)
    assert in_table(root) == expected
    assert verify(root).ok
    assert not repair(root).actions


def test_unknown_topics_are_restored_from_their_queues(sound):
    for name in (TOPICS, f"{TOPICS}.bak", OWN[1]):
        (sound / name).unlink()
    missing = [one for one in verify(sound).findings if one.code == "CONFIG_TOPIC_MISSING"]
    assert [("'t'" in one.what, one.severity) for one in missing] == [
        (True, Severity.ERROR),
        (False, Severity.ERROR),
    ]
    repair(sound)
    assert in_table(sound) == {"t": (1, 1), "u": (2, 2)}
    assert verify(sound).ok


def test_topics_are_restored_from_the_log_with_their_queues(sound):
    shutil.rmtree(sound / "consumequeue")
    for name in (TOPICS, f"{TOPICS}.bak", OWN[1]):
        (sound / name).unlink()
    repair(sound)
    assert in_table(sound) == {"t": (1, 1), "u": (2, 2)}
    assert verify(sound).ok


def test_deleted_topics_are_not_reported(path, clock):
    """Both pyrocket and a broker may delete a topic whose messages are still in the log."""
    with make(path, clock) as store:
        store.topics.delete("t")
    assert verify(path).ok
    copy = copied(path)
    table = json.loads((copy / TOPICS).read_text())
    del table["topicConfigTable"]["u"]
    (copy / TOPICS).write_text(json.dumps(table))
    assert verify(copy).ok
    assert verify(copy).counts["CONFIG_TOPIC_MISSING"] == 1, "its queues exist"
    repair(copy)
    assert "u" not in in_table(copy), "a deleted topic is not restored"
    with Store.open(path) as store:
        store.topics.create("empty", read_queues=1, write_queues=1)
        store.topics.update("empty", perm=4)
    shutil.rmtree(copy)
    copy = copied(path)
    table = json.loads((copy / TOPICS).read_text())
    del table["topicConfigTable"]["empty"]
    (copy / TOPICS).write_text(json.dumps(table))
    assert verify(copy).ok


def test_missing_tables_are_reported_and_topics_restored(sound):
    expected = in_table(sound)
    shutil.rmtree(sound / "config")
    (finding,) = [one for one in verify(sound).findings if one.code == "CONFIG_MISSING"]
    assert "No repair can restore the offsets of groups" in finding.fix
    repair(sound)
    assert in_table(sound) == expected
    assert not verify(sound).findings


@pytest.mark.parametrize("offset", [61, -1])
def test_an_offset_beyond_its_queue_is_reported_and_its_remedy_works(sound, offset):
    table = {"t@g": {0: offset, 7: 99}, "gone@g": {0: 99}}
    (sound / OFFSETS).write_text(json.dumps({"offsetTable": table}))
    (finding,) = verify(sound).findings
    assert (finding.code, finding.severity) == ("GROUP_OFFSET", Severity.WARNING)
    assert f"up to {offset}, but the queue ends at 60" in finding.what
    assert "Store.groups.reset('g', 't', 'latest')" in finding.fix
    with Store.open(sound) as store:
        store.groups.reset("g", "t", "latest")
    assert verify(sound).ok


def test_an_offset_below_the_minimum_is_not_reported(path, clock):
    with make(path, clock) as store:
        store.clean(total_bytes=0)
        assert store.min_offset("t", 0) > 17
    assert verify(path).ok


def test_a_folder_that_blocks_a_repair_is_reported(sound):
    folder_for("lock", sound)
    (finding,) = [one for one in verify(sound).findings if one.code == "FOREIGN_FILE"]
    assert finding.file == "lock"
    assert finding.fix.startswith("Move it away while the store is closed everywhere")
    shutil.rmtree(sound / "lock")
    Store.open(sound).close()
    assert verify(sound).ok


@pytest.mark.parametrize("name", ["config", "pyrocket"])
def test_a_file_in_place_of_the_pyrocket_folder_is_reported_once(sound, name):
    file_for(name, sound)
    (finding,) = [one for one in verify(sound).findings if one.code == "CONFIG_BROKEN"]
    assert finding.file == name
    (sound / name).unlink()
    repair(sound)
    assert set(in_table(sound)) == {"t", "u"}
    assert verify(sound).ok
