"""Stores of a RocketMQ 4.9.8 broker are opened for writing, continued and recovered."""

import shutil

import pyarrow as pa
import pytest
from golden.java import (
    CLEAN,
    GOLDEN,
    LOG_END,
    TXCHECK,
    check_test_topic,
    listing,
    log_bytes,
    queue_files,
)
from pyrocket import Message, Store, StoreConfig
from pyrocket.formats.checkpoint import decode_checkpoint


@pytest.fixture
def clean(tmp_path):
    return shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)


@pytest.fixture
def txcheck(tmp_path):
    return shutil.copytree(GOLDEN / TXCHECK, tmp_path / TXCHECK)


def test_a_writer_derives_sizes_from_the_files_and_creates_an_identity(clean):
    lock = (clean / "lock").stat()
    with Store.open(clean) as store:
        uuid = store.uuid
        assert len(uuid) == 36
        check_test_topic(store)
    with Store.open(clean, read_only=True) as store:
        assert (store.uuid, store.history.epoch) == (uuid, 0)
        check_test_topic(store)
    assert ((clean / "lock").stat().st_mtime_ns, (clean / "lock").stat().st_ino) == (
        lock.st_mtime_ns,
        lock.st_ino,
    )
    # The broker's files are unchanged as long as nothing is appended.
    kept = {n: data for n, (*_, data) in listing(GOLDEN / CLEAN).items() if data is not None}
    now = {n: data for n, (*_, data) in listing(clean).items() if data is not None}
    assert {name: now.get(name) for name in kept} == kept
    assert {name for name in now.keys() - kept.keys() if not name.startswith("pyrocket/")} == set()


def fill(store, count=60):
    """Append single messages and a batch until the log and the queues have new files."""
    results = [
        store.append(Message(topic="TopicTest", body=b"single%d" % n, tags="New", queue_id=n % 2))
        for n in range(count)
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"batch%d" % n for n in range(count)],
            "queueId": pa.array([n % 2 for n in range(count)], pa.int32()),
        }
    )
    store.append_batch(batch, topic="TopicTest")
    return results


def test_appends_continue_after_the_messages_of_the_broker(clean):
    java_log = log_bytes(clean)[:LOG_END]
    with Store.open(clean) as store:
        results = fill(store)
        assert (clean / "abort").exists()
    assert results[0].physical_offset == LOG_END
    assert [r.queue_offset for r in results] == [(14, 13)[n % 2] + n // 2 for n in range(60)]
    with Store.open(clean, read_only=True) as store:
        check_test_topic(store)
        for queue_id, first in ((0, 14), (1, 13)):
            assert store.max_offset("TopicTest", queue_id) == first + 60
            bodies = [m.body for m in store.read("TopicTest", queue_id, first, 100)]
            numbers = range(queue_id, 60, 2)
            kinds = (b"single%d", b"batch%d")
            assert bodies == [kind % n for kind in kinds for n in numbers]
            scanned = store.scan("TopicTest", queue_id, 0, first + 60, verify_crc=True)
            rows = pa.Table.from_batches(scanned)
            assert rows["queueOffset"].to_pylist() == list(range(first + 60))
    assert log_bytes(clean).startswith(java_log)
    assert_run_of_files(clean / "commitlog", 4096, at_least=5)
    assert_run_of_files(clean / "consumequeue/TopicTest/0", 200, at_least=7)


def assert_run_of_files(folder, size, *, at_least):
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"{k * size:020d}" for k in range(len(files))]
    assert {path.stat().st_size for path in files} == {size}
    assert len(files) >= at_least


def test_a_clean_shutdown_leaves_a_checkpoint_and_no_abort(clean):
    with Store.open(clean) as store:
        fill(store)
        newest = store.read("TopicTest", 0, 73, 1)[0].store_timestamp
    assert not (clean / "abort").exists()
    checkpoint = decode_checkpoint((clean / "checkpoint").read_bytes())
    assert checkpoint.log_timestamp == checkpoint.queue_timestamp >= newest


def test_a_store_that_was_not_closed_is_recovered_completely(clean):
    store = Store.open(clean)
    fill(store)
    store.close(clean=False)
    assert (clean / "abort").exists()
    # As after a reboot: the shared state is invalid.
    (clean / "pyrocket/state").unlink()
    with Store.open(clean) as store:
        check_test_topic(store)
        assert (store.max_offset("TopicTest", 0), store.max_offset("TopicTest", 1)) == (74, 73)
        assert store.history.epoch == 1
    assert not (clean / "abort").exists()


@pytest.mark.parametrize("damage", ["nothing", "checkpoint", "queues"])
def test_rebuilt_queues_equal_those_of_the_broker(clean, damage):
    (clean / "abort").touch()
    if damage == "checkpoint":
        (clean / "checkpoint").unlink()
    elif damage == "queues":
        shutil.rmtree(clean / "consumequeue")
    # Without queues there is no file from which to derive the size.
    with Store.open(clean, config=StoreConfig(queue_file_entries=10)) as store:
        check_test_topic(store)
    rebuilt, java = queue_files(clean), queue_files(GOLDEN / CLEAN)
    assert rebuilt.keys() == java.keys()
    for name in java:
        if "SCHEDULE_TOPIC_XXXX" not in name:
            assert rebuilt[name] == java[name], name


def test_the_delay_queue_is_rebuilt_with_delivery_times(clean):
    (clean / "abort").touch()
    (clean / "checkpoint").unlink()
    shutil.rmtree(clean / "consumequeue/SCHEDULE_TOPIC_XXXX")
    Store.open(clean).close()
    assert queue_files(clean) == queue_files(GOLDEN / CLEAN)


def test_topics_can_be_added_to_a_broker_store(clean):
    with Store.open(clean) as store:
        known = store.topics.all().keys()
        store.append(Message(topic="Added", body=b"x", queue_id=3))
    with Store.open(clean, read_only=True) as store:
        assert store.topics.all().keys() == known | {"Added"}
        assert store.read("Added", 3, 0)[0].body == b"x"
    assert (clean / "config/topics.json.bak").read_bytes() == (
        GOLDEN / CLEAN / "config/topics.json"
    ).read_bytes()


def test_a_store_with_transaction_checks_is_continued(txcheck):
    with Store.open(txcheck) as store:
        result = store.append(Message(topic="TopicTest", body=b"x" * 4000))
    assert result.physical_offset == 2810
    with Store.open(txcheck, read_only=True) as store:
        assert store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 9
        assert store.read("TopicTest", result.queue_id, 0)[0].body == b"x" * 4000
    assert (txcheck / "commitlog" / f"{0:020d}").stat().st_size == 65536
