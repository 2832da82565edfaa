"""Only the ends of changed queues are saved, and they never decrease."""

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.metadata.queue_ends import QueueEnds
from support.stores import SMALL, batch, bodies, filled, message, numbered, queue_files

QUEUES = 20


@pytest.fixture
def many(path, clock):
    """A cleanly closed store with 20 queues of one message each."""
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=QUEUES, write_queues=QUEUES)
        store.append_batch(batch(numbered(QUEUES), list(range(QUEUES))), topic="t")
    return path


@pytest.fixture
def looked_at(monkeypatch):
    """The ids of the queues of topic t that are read during the test."""
    seen, get = set(), QueueTable.get

    def noting(queues, topic, queue_id):
        if topic == "t":
            seen.add(queue_id)
        return get(queues, topic, queue_id)

    monkeypatch.setattr(QueueTable, "get", noting)
    return seen


def saved(path):
    return QueueEnds(Layout(path)).read().least()


def test_a_clean_shutdown_reads_only_changed_queues(many, looked_at):
    store = Store.open(many, config=SMALL)
    looked_at.clear()
    store.append(message(queue_id=3))
    store.append(message(queue_id=7))
    store.close()
    assert looked_at == {3, 7}
    ends = dict.fromkeys(range(QUEUES), 1) | {3: 2, 7: 2}
    assert saved(many) == {("t", queue): end for queue, end in ends.items()}


def test_a_checkpoint_reads_only_queues_changed_since_the_last_checkpoint(
    many, looked_at, open_store, clock
):
    store = open_store()
    for queue in (3, 7):
        store.append(message(queue_id=queue))
        looked_at.clear()
        clock.now += 60_000
        store.flush()
        assert looked_at == {queue}
        assert saved(many)["t", queue] == 2


def test_ends_of_queues_that_another_writer_appended_to_are_saved(many, recoveries):
    recoveries.clear()
    with Store.open(many, config=SMALL) as store:
        store.append(message(queue_id=3))
        with Store.open(many, config=SMALL) as other:
            other.append(message(queue_id=5))
        store.append(message(queue_id=7))
    assert [saved(many)["t", queue] for queue in (3, 5, 7)] == [2, 2, 2]
    Store.open(many, config=SMALL).close()
    assert recoveries == []


def test_a_cleaning_does_not_cause_all_queues_to_be_read_again(path, recoveries):
    with filled(path, 200) as store:
        store.topics.create("other", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(30), 0), topic="other")
    with Store.open(path, config=SMALL) as store:
        assert store.clean(total_bytes=9000).queue_files
        store.append(message(topic="other"))
    recoveries.clear()
    Store.open(path, config=SMALL).close()
    assert recoveries == []


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("lost", [slice(None), slice(3, None)], ids=["all files", "the last"])
def test_the_saved_end_of_a_queue_that_loses_files_while_the_store_is_open_does_not_decrease(
    path, recoveries, lost, others
):
    filled(path).close()
    recoveries.clear()
    with Store.open(path, config=SMALL) as store:
        store.topics.create("other", read_queues=1, write_queues=1)
        store.append(message(topic="other"))
        if others:
            with Store.open(path, config=SMALL) as other:
                other.append(message(topic="other"))
        for file in queue_files(path)[lost]:
            file.unlink()
        store.append(message(topic="other"))
    assert saved(path)["t", 0] == 40
    with Store.open(path, config=SMALL) as store:
        assert recoveries == [True]
        assert bodies(store) == {0: numbered(40)}
        assert store.append(message()).queue_offset == 40


@pytest.mark.parametrize("others", [False, True])
def test_a_queue_that_lost_its_first_file_while_the_store_was_open_is_rebuilt(
    path, recoveries, others
):
    filled(path).close()
    recoveries.clear()
    with Store.open(path, config=SMALL) as store:
        if others:
            with Store.open(path, config=SMALL) as other:
                other.append(message(b"other"))
        queue_files(path)[0].unlink()
        store.append(message(b"more"))
    with Store.open(path, config=SMALL) as store:
        assert recoveries == [True]
        others = [b"other"] if others else []
        assert bodies(store) == {0: [*numbered(40), *others, b"more"]}


def test_a_deleted_topic_is_removed_when_all_queues_are_read(path, recoveries):
    with filled(path, 200) as store:
        store.topics.create("other", read_queues=1, write_queues=1)
        store.append(message(topic="other"))
    with Store.open(path, config=SMALL) as store:
        store.topics.delete("other")
        store.clean(total_bytes=9000)
        store.append(message())
    assert saved(path).keys() == {("t", 0)}
    recoveries.clear()
    Store.open(path, config=SMALL).close()
    assert recoveries == []
