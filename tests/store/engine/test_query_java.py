"""Lookups in stores of a broker, whose index is used, continued or, after a crash, ignored."""

import shutil

import pytest
from golden.java import CLEAN, GOLDEN, TXCHECK
from pyrocket import Store
from support.stores import message

HALF, DELAYED = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(params=[True, False], ids=["read-only", "continued"])
def java(request, tmp_path):
    """Opens a copy of a fixture."""

    def open_copy(name):
        shutil.copytree(GOLDEN / name, tmp_path / name)
        opened.append(Store.open(tmp_path / name, read_only=request.param))
        return opened[-1]

    opened = []
    yield open_copy
    for one in opened:
        one.close()


def test_half_and_delayed_messages_are_found_under_their_system_topics(java):
    store = java(CLEAN)
    (committed,) = [m for m in store.read("TopicTest", 0, 13) if m.body == b"half"]
    (half,) = store.lookup.query(HALF, committed.msg_id)
    assert (half.body, half.topic) == (b"half", HALF)
    assert committed in store.lookup.query("TopicTest", committed.msg_id)
    (delayed,) = [m for m in store.read("TopicTest", 1, 12) if m.body == b"delayed"]
    assert [m.topic for m in store.lookup.query(DELAYED, delayed.msg_id)] == [DELAYED]
    checked = java(TXCHECK)
    (discarded,) = checked.read("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0)
    assert discarded in checked.lookup.query("TRANS_CHECK_MAX_TIME_TOPIC", discarded.msg_id)


def test_the_last_index_file_of_a_broker_is_continued(tmp_path):
    shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    (file,) = (tmp_path / "s" / "index").iterdir()
    before = file.read_bytes()
    with Store.open(tmp_path / "s") as store:
        store.append(message(b"ours", topic="TopicTest", keys=["K2"]))
    (after,) = (tmp_path / "s" / "index").iterdir()
    assert after == file
    assert after.stat().st_size == len(before)
    items = 40 + 400 + 20 * 82
    assert after.read_bytes()[440:items] == before[440:items]
    with Store.open(tmp_path / "s", read_only=True) as store:
        assert len(store.lookup.query("TopicTest", "K2", max_messages=100)) == 26


def test_an_unfinished_index_file_is_not_trusted_after_a_broker_crashed(tmp_path):
    shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    (file,) = (tmp_path / "s" / "index").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:40] + bytes(len(data) - 40))
    (tmp_path / "s" / "abort").touch()
    for read_only in (True, False, True):
        with Store.open(tmp_path / "s", read_only=read_only) as store:
            assert len(store.lookup.query("TopicTest", "K2", max_messages=100)) == 25
