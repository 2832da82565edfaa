"""This release reads, continues and verifies the stores that earlier releases wrote.

`stores/<release>` was written once by `stores/write.py` with that release's code; `<name>.json`
contains the result of that release's reader.
"""

import json
import shutil
from pathlib import Path

import pytest
from golden.stores.look import look, pending
from pyrocket import Message, SinkBatch, Store
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import SinkError
from pyrocket.tools.verify.verify import verify
from support.sinks import stage
from support.stores import FakeClock, snapshot, words

STORES = Path(__file__).parent / "stores"
RELEASES = sorted(path.name for path in STORES.iterdir() if (path / "clean.json").exists())
DAY = 86_400_000

pytestmark = [
    pytest.mark.parametrize("release", RELEASES),
    pytest.mark.parametrize("name", ["clean", "unclean"]),
]


@pytest.fixture
def seen(release, name):
    """The content that the release's own reader returned."""
    return json.loads((STORES / release / f"{name}.json").read_text())


@pytest.fixture
def root(release, name, tmp_path):
    return shutil.copytree(STORES / release / name, tmp_path / name)


@pytest.fixture
def clock(seen):
    return FakeClock(seen.pop("now"))


def as_json(seen):
    return json.loads(json.dumps(seen))


def test_all_messages_and_progress_are_read_and_reading_changes_nothing(root, name, seen, clock):
    before = snapshot(root)
    with Store.open(root, read_only=True, clock=clock) as store:
        found = as_json(look(store))
    if name == "unclean":
        # Only a writer may use the shared state of a killed writer; a reader uses the saved state.
        for unsaved in ("pending", "undecided", "keys"):
            found.pop(unsaved), seen.pop(unsaved)
    assert found == seen
    assert snapshot(root) == before


def test_a_writer_finds_all_messages_and_continues(root, name, seen, clock):
    with Store.open(root, clock=clock) as store:
        seen["epoch"] += name == "unclean"
        assert as_json(look(store)) == seen
        ends = {queue: known.maximum for queue, known in store.offsets("orders").items()}
        for queue_id in ends:
            store.append(Message(topic="orders", body=b"added", keys=("new",), queue_id=queue_id))
    with Store.open(root, read_only=True, clock=clock) as store:
        for queue_id, end in ends.items():
            assert [one.body for one in store.read("orders", queue_id, end)] == [b"added"]
        assert len(store.lookup.query("orders", "new")) == len(ends)


def test_pending_messages_are_delivered_once_when_due(root, seen, clock):
    due = [(topic, body) for topic, _, body in seen["pending"]]
    with Store.open(root, clock=clock) as store:
        before = store.max_offset("later", 0)
        clock.now += 3 * DAY
        while store.deliver_due():
            pass
        assert not list(pending(store))
        delivered = store.read("later", 0, before)
        assert sorted((one.topic, one.body.decode()) for one in delivered) == sorted(due)


def test_consumers_and_queries_resume_from_their_progress(root, seen, clock):
    with Store.open(root, clock=clock) as store:
        store.groups.commit("billing", "orders", {0: 20})
        assert store.groups.committed("billing", "orders") == {0: 20, 1: 2}
        last = seen["sinks"]["stream-1/sunk"]
        before = store.max_offset("sunk", 0)
        rows = [b"stream-1 %d %d" % (last, n) for n in range(2)]
        replay = batch(last)
        assert store.sink.publish(replay, [stage(store, replay, rows, topic="sunk")]).dropped
        with pytest.raises(SinkError, match="SINK_BATCH_BEHIND"):
            store.sink.publish(batch(last - 1), [stage(store, batch(last - 1), rows, topic="sunk")])
        following = batch(last + 1)
        published = store.sink.publish(following, [stage(store, following, rows, topic="sunk")])
        assert not published.dropped
        assert store.max_offset("sunk", 0) == before + 2


def test_a_deleted_and_recreated_topic_has_another_id_and_continues_its_offsets(root, clock):
    with Store.open(root, clock=clock) as store:
        store.topics.create("gone", read_queues=1, write_queues=1)
        assert store.append(Message(topic="gone", body=b"x", queue_id=0)).queue_offset == 1


def test_verify_finds_no_damage_before_and_after_a_writer(root, name, clock):
    if name == "clean":
        assert errors(root) == []
    with Store.open(root, clock=clock) as store:
        store.append(Message(topic="orders", body=b"added", queue_id=0))
    assert errors(root) == []


def errors(root):
    return [found for found in verify(root).findings if found.severity.name == "ERROR"]


def batch(number):
    return SinkBatch(identity="stream-1", target="sunk", batch=number, run="run-1")


def test_a_flipped_bit_in_the_state_of_a_clean_store_is_detected(root, name):
    page = words(root)
    page[PUBLISHED] ^= 1
    page.close()
    assert ("STATE_DAMAGED" in verify(root).counts) is (name == "clean")
