"""Records whose queue offset is not the next of their queue.

Such records were written before a truncation of the log or the deletion of a topic.
"""

import pytest
from pyrocket import Store
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import SYS_PREPARED, encode_record
from support.stores import (
    SMALL,
    bodies,
    filled,
    message,
    numbered,
    queue_files,
    reboot,
    words,
)

STORED = 1_700_000_000_000


@pytest.fixture
def log(path, clock):
    """A store after a power loss; `write` adds messages to its log as RocketMQ would."""
    filled(path, count=150, clock=clock).close(clean=False)
    return Log(path, 150)


class Log:
    def __init__(self, path, count):
        self.path, self.count = path, count
        page = words(path)
        self.end = page[PUBLISHED]
        page.close()

    def write(self, queue_offset, body=b"forged", topic="t", queue_id=0, sys_flag=0, time=STORED):
        """Add a record after the last record, within the same file."""
        record = encode_record(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=self.end,
            body=body,
            properties=b"",
            born_timestamp=time,
            store_timestamp=time,
            sys_flag=sys_flag,
        )
        start = self.end - self.end % SMALL.log_file_bytes
        assert self.end + len(record) + 8 <= start + SMALL.log_file_bytes
        with (self.path / "commitlog" / f"{start:020d}").open("r+b") as file:
            file.seek(self.end - start)
            file.write(record)
        self.end += len(record)

    def recover(self):
        reboot(self.path)
        return Store.open(self.path, config=SMALL)


@pytest.mark.parametrize("beside", [-1, 1])
def test_the_log_is_truncated_at_a_record_whose_queue_offset_is_not_the_next(log, beside):
    """The queue offset is repeated, or there is a gap: the record is older than a truncation."""
    good = log.end
    log.write(log.count + beside)
    log.write(log.count)
    with log.recover() as store:
        assert bodies(store)[0] == numbered(log.count)
        assert store.history.cut_since(0, "t", 0) == log.count
        assert store.append(message(b"next")).physical_offset == good


def test_a_record_that_was_durable_is_never_truncated(log):
    """According to the checkpoint the record was durable, so the log is damaged or invalid."""
    log.write(log.count + 7, time=STORED - 10_000)
    checkpoint = (STORED - 5000).to_bytes(8, "big") * 2
    (log.path / "checkpoint").write_bytes(checkpoint.ljust(4096, b"\0"))
    before = {file: file.read_bytes() for file in log.path.glob("commitlog/*")}
    with pytest.raises(StoreDamagedError, match=str(log.count + 7)) as caught:
        log.recover()
    assert caught.value.code == "QUEUE_GAP"
    assert {file: file.read_bytes() for file in log.path.glob("commitlog/*")} == before


def test_nothing_is_truncated_after_a_clean_shutdown(log):
    log.write(log.count + 7)
    (log.path / "abort").unlink()
    with pytest.raises(StoreDamagedError) as caught:
        log.recover()
    assert caught.value.code == "QUEUE_GAP"


def test_prepared_messages_are_not_in_a_queue(log):
    log.write(0, sys_flag=SYS_PREPARED)
    log.write(0, sys_flag=SYS_PREPARED)
    log.write(log.count)
    with log.recover() as store:
        assert bodies(store)[0] == [*numbered(log.count), b"forged"]


@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize("queues", ["kept", "lost"])
def test_a_topic_that_rocketmq_created_again_restarts_at_0(log, clean, queues):
    """Messages from before the deletion are in the log, but not in a queue."""
    for number in range(3):
        log.write(number, b"new %d" % number)
    if queues == "lost":
        for file in queue_files(log.path):
            file.unlink()
    if clean:
        (log.path / "abort").unlink()
    with log.recover() as store:
        assert bodies(store)[0] == [b"new 0", b"new 1", b"new 2"]
        assert store.append(message(b"next")).queue_offset == 3
    reboot(log.path)
    with Store.open(log.path, config=SMALL) as store:
        assert bodies(store)[0] == [b"new 0", b"new 1", b"new 2", b"next"]


@pytest.mark.parametrize("lost", [1, 4, 8])
def test_a_topic_recreated_after_its_last_messages_were_lost_begins_at_its_saved_end(
    path, open_store, lost
):
    """The end offsets of a deleted topic may be durable before its last messages."""
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    sent = [store.append(message(b"%d" % number)) for number in range(9)]
    store.topics.delete("t")
    store.close(clean=False)
    (file,) = (path / "commitlog").iterdir()
    at = sent[-lost].physical_offset - int(file.name)
    file.write_bytes(file.read_bytes()[:at].ljust(SMALL.log_file_bytes, b"\0"))
    for _ in range(3):
        reboot(path)
        store = open_store()
        store.topics.create("t", read_queues=1, write_queues=1)
        offset = store.max_offset("t", 0)
        assert store.append(message(b"new")).queue_offset == offset >= 9
        store.close(clean=False)
    reboot(path)
    assert bodies(open_store())[0] == [b"new"] * 3
