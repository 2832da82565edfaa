"""The stores of RocketMQ's broker 4.9.8, and their content."""

from pathlib import Path

GOLDEN = Path(__file__).parent
CLEAN, TXCHECK = "java498-clean", "java498-txcheck"
LOG_END = 5438
"""The end offset of the clean store's log."""

# The numbers of the messages in queue 0 (hello0, hello2, …) and queue 1 (hello1, hello3, …).
HELLOS = {0: range(0, 25, 2), 1: range(1, 25, 2)}


def listing(root):
    """Return everything about the files that a write could change."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_ino,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [root, *sorted(root.rglob("*"))]
    }


def log_bytes(root):
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def queue_files(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("0*"))
        if path.is_file()
    }


def check_test_topic(store):
    """Check that all messages of TopicTest are exactly those that the fixture's producer sent."""
    for queue_id, numbers in HELLOS.items():
        messages = store.read("TopicTest", queue_id, 0, 100)
        hellos = messages[: len(numbers)]
        assert [message.queue_offset for message in messages] == list(range(len(messages)))
        for message, number in zip(hellos, numbers, strict=True):
            assert message.body == b"hello%d" % number
            assert (message.tags, message.keys) == ("TagA", (f"ORDER{number}", "K2"))
            assert message.born_timestamp == 1600000000000 + number
            assert (message.born_host, message.store_host) == ("127.0.0.1:54321", "127.0.0.1:10911")
            assert set(message.properties) == {"KEYS", "TAGS", "UNIQ_KEY"}
            assert message.msg_id == f"7F00000100002A139F550000000{number % 10}0001"
            assert (message.flag, message.sys_flag, message.reconsume_times) == (0, 0, 0)
    committed = store.read("TopicTest", 0, 13, 1)[0]
    assert (committed.body, committed.tags, committed.sys_flag) == (b"half", "TagC", 8)
    delayed = store.read("TopicTest", 1, 12, 1)[0]
    assert (delayed.body, delayed.tags, delayed.properties["DELAY"]) == (b"delayed", "TagB", "1")
