"""`Store.queue_range` of queues that are in use, removed from their topic, or deleted with it."""

from pyrocket import QueueOffsets, Store
from support.stores import filled


def test_the_range_of_a_queue_in_use_is_its_offsets(path):
    with filled(path, count=40) as store:
        assert store.queue_range("t", 0) == store.offsets("t")[0] == QueueOffsets(0, 40)


def test_the_range_of_a_deleted_queue_is_empty_at_its_former_end(path):
    with filled(path, count=40) as store:
        store.topics.delete("t")
        assert store.queue_range("t", 0) == QueueOffsets(40, 40)
        assert store.queue_range("t", 7) == store.queue_range("never", 0) == QueueOffsets(0, 0)
    with Store.open(path, read_only=True) as reader:
        assert reader.queue_range("t", 0) == QueueOffsets(40, 40)


def test_the_range_excludes_expired_messages(path):
    with filled(path, count=60, body_bytes=200) as store:
        assert store.clean(hours=0).removals
        assert store.queue_range("t", 0) == store.offsets("t")[0]
        assert store.queue_range("t", 0).minimum > 0
