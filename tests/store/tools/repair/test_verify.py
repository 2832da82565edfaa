"""A check of an undamaged store finds nothing, for stores of any origin and content."""

import shutil
import struct
from itertools import product

import pytest
from golden.java import CLEAN, GOLDEN, TXCHECK, listing
from pyrocket import Store
from pyrocket.disk.shared_state import RESERVED
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.shares import share
from support.stores import (
    SMALL,
    batch,
    filled,
    log_files,
    message,
    next_boot,
    numbered,
    overwrite,
    reboot,
    scan,
)

JAVA5 = "java550-clean"


@pytest.mark.parametrize("name", [CLEAN, TXCHECK])
def test_verify_finds_nothing_in_stores_of_brokers(tmp_path, name):
    """Delayed, half and op messages, and a key index, all written by RocketMQ."""
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    before = listing(root)
    report = verify(root)
    assert not report.findings
    assert report.messages == report.entries > 0
    assert listing(root) == before


def test_tags_indexed_by_rocketmq_5_5_are_allowed_but_not_required(tmp_path):
    """RocketMQ 5.5 indexes `topic#T#tag`; pyrocket never writes such items."""
    root = shutil.copytree(GOLDEN / JAVA5, tmp_path / JAVA5)
    before = listing(root)
    assert set(verify(root).counts) == {"CHECKPOINT_BEHIND"}
    assert listing(root) == before
    with Store.open(root) as store:
        store.append(message(b"more", "TopicTest", 0, tags="TagA", keys=["mine"]))
        expected = [each.body for each in store.lookup.query("TopicTest", "K2")]
    assert not verify(root).findings
    shutil.rmtree(root / "index")
    with Store.open(root) as store:
        store.append(message(b"last", "TopicTest", 0))
    assert not verify(root).findings
    with Store.open(root, read_only=True) as store:
        assert [each.body for each in store.lookup.query("TopicTest", "K2")] == expected
        assert [each.body for each in store.lookup.query("TopicTest", "mine")] == [b"more"]


def test_a_wrong_tag_item_of_rocketmq_5_5_is_found_and_repaired(tmp_path):
    root = shutil.copytree(GOLDEN / JAVA5, tmp_path / JAVA5)
    (index,) = (root / "index").iterdir()
    tag = 40 + 4 * 100 + 20 * 4  # The fourth item; the first three are a unique id and two keys.
    overwrite(index, bytes([index.read_bytes()[tag + 3] ^ 1]), tag + 3)
    (finding,) = [one for one in verify(root).findings if one.code == "KEY_INDEX_WRONG"]
    assert "without tags" in finding.fix
    (action,) = [one for one in repair(root, dry_run=True).actions if one.kind == "keys"]
    assert "without tags" in action.what
    repair(root)
    assert not verify(root).findings


@pytest.mark.parametrize(
    ("older_life_in_log", "entry"),
    share(product([True, False], [(3_476_042_700, 1_748_429_930), (20_480, 200), (90_000, 91)]), 3),
)
def test_an_entry_before_the_first_message_of_a_queue_is_found_and_removed(
    path, clock, older_life_in_log, entry
):
    """In a recreated topic these entries are blank, and a reader would start the queue there."""
    with filled(path, count=35, clock=clock) as store:
        store.topics.delete("t")
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(60), 0), topic="t")
        if not older_life_in_log:
            store.clean(total_bytes=3 * SMALL.log_file_bytes)
        first = store.offsets("t")[0].minimum
        expected = scan(store, "t", 0)
    at = (first - 1) * 20
    file = path / "consumequeue/t/0" / f"{at - at % 200:020}"
    overwrite(file, struct.pack(">qi", *entry), at % 200)
    assert not verify(path).ok
    repair(path)
    assert verify(path).ok
    with Store.open(path, read_only=True) as store:
        assert scan(store, "t", 0) == expected


def test_files_of_a_killed_writer_are_not_reported_as_damaged(path, clock):
    """The log has unpublished bytes, and a message without a queue entry."""
    store = filled(path, count=30, clock=clock)
    writer = inner(store).writer
    appender = inner(store).appender
    real = appender._dispatch
    appender._dispatch = lambda *given: (_ for _ in ()).throw(OSError(5, "no"))
    with pytest.raises(StoreUnavailableError):
        store.append(message(b"later", queue_id=0))
    appender._dispatch = real
    end = store.position().published
    writer.page[RESERVED] = end + 100
    overwrite(log_files(path)[-1], b"half a record", end % 4096)
    report = verify(path)
    assert report.ok, report.findings
    assert (report.messages, report.entries) == (31, 30)
    store.close()
    assert not verify(path).findings


def test_complete_messages_after_damage_are_found(path, clock):
    """A body that contains copies of a record does not confuse the search."""
    with filled(path, count=5, clock=clock) as store:
        inner = log_files(path)[0].read_bytes()[:250]
        store.append(message(inner * 2, queue_id=0))
        store.append_batch(batch(numbered(30), 0), topic="t")
    reboot(path)
    overwrite(log_files(path)[0], b"\0\0\0\0", 4)
    report = verify(path)
    assert report.messages == 35
    assert report.first_damage
    damaged = [finding for finding in report.findings if finding.code == "LOG_DAMAGED"]
    assert [(finding.file, finding.position) for finding in damaged] == [
        ("commitlog/00000000000000004096", 0)
    ]


@pytest.mark.parametrize(("boot", "files"), [(reboot, [-2]), (reboot, [-4]), (next_boot, [-4, -2])])
def test_repair_skips_damage_that_writers_reject(path, clock, files, boot):
    """After a clean shutdown, writers check the last three files."""
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for first in range(0, 150, 10):
            clock.now += 10_000
            store.append_batch(batch(numbered(10, first=first), 0), topic="t")
    boot(path)
    for file in files:
        overwrite(log_files(path)[file], b"!", 150)
    report = verify(path)
    fixes = [finding.fix for finding in report.findings if finding.code == "LOG_DAMAGED"]
    assert len(fixes) == len(files)
    assert all("may refuse it (LOG_DAMAGED)" in fix for fix in fixes)
    if boot is reboot and files != [-4]:
        with pytest.raises(StoreDamagedError, match="LOG_DAMAGED"):
            Store.open(path)
    repair(path)
    assert verify(path).ok
    with Store.open(path) as store:
        assert store.max_offset("t", 0) == 150
        assert store.append(message(b"on")).queue_offset == 150


def test_verify_finds_nothing_in_a_store_with_all_kinds_of_messages(path, clock):
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.append(message(b"", queue_id=0))
        store.append(message(b"x" * 3500, queue_id=0, tags="a", keys=["k1", "k2"]))
        store.append(message(b"y" * 5000, queue_id=0, properties={"p": "é" * 100}))
        assert verify(path).ok
    reboot(path)
    assert not verify(path).findings


def test_progress_reaches_the_total(path, clock):
    filled(path, count=60, clock=clock).close()
    reports = []
    verify(path, lambda done, total, file: reports.append((done, total, file)))
    assert [done for done, _, _ in reports] == sorted(done for done, _, _ in reports)
    assert reports[-1][0] == reports[-1][1]
    assert all(file.startswith("commitlog/") for _, _, file in reports)


def test_a_writer_that_opens_the_store_during_a_check_is_not_damage(path):
    """The bytes of the writer's unpublished append are not reported as damage either."""
    filled(path).close()
    came = []

    def come_in(done, total, file):
        if not came:
            came.append(Store.open(path, config=SMALL))
            came[0].append(message())
            end = came[0].position().published
            overwrite(log_files(path)[-1], b"\1" * 9, end % SMALL.log_file_bytes)

    report = verify(path, come_in)
    assert came
    assert report.ok, report.findings
    came[0].close(clean=False)
