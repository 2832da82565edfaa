"""A follower keeps a copy of its primary's log, byte for byte, and nothing else writes to it."""

import pytest
from pyrocket import Message, PyrocketError, Store, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import SmallFiles
from pyrocket.errors import StoreReadOnlyError
from pyrocket.tools.repair.run import repair
from support.replicas import (
    assert_alike,
    first_offset,
    log_bytes,
    opened,
    pass_files,
    pass_on,
    published,
    replica_of,
)
from support.stores import SMALL, batch, bodies, message, numbered, reboot


@pytest.fixture
def path(tmp_path):
    return tmp_path / "primary"


@pytest.fixture
def primary(path):
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        yield store


@pytest.fixture
def replica(primary, path, tmp_path):
    follower = replica_of(path, tmp_path / "replica")
    yield follower
    follower.close(clean=True)


def fill(store, rounds=3):
    """Append messages of all kinds; several log files are filled."""
    for number in range(rounds):
        rows = numbered(12, 300, 100 * number)
        store.append_batch(batch(rows, [n % 2 for n in range(12)]), topic="t")
        store.append(message(b"keyed", keys=[f"k{number}"], tags="a"))
        store.append(message(b"delayed", delay_level=2))
        store.transactions.send_half("g", message(b"half"))
        store.append(message(b"x" * 2500))


@pytest.mark.parametrize("step", [1 << 20, 4096, 1000, 97, 8])
def test_the_log_is_equal_however_its_bytes_are_divided(primary, path, replica, tmp_path, step):
    fill(primary, 2)
    pass_on(path, replica, step)
    pass_files(path, replica)
    assert replica.end == published(path)
    assert_alike(path, tmp_path / "replica")


def test_only_whole_records_are_published(primary, path, replica, tmp_path):
    primary.append(message(b"x" * 500))
    start, end = first_offset(path), published(path)
    replica.receive(start, log_bytes(path, start, end - 1))
    assert published(tmp_path / "replica") == start
    replica.receive(end - 1, log_bytes(path, end - 1, end))
    assert published(tmp_path / "replica") == end


def test_a_log_whose_first_files_are_gone_is_followed(primary, path, replica, tmp_path):
    fill(primary)
    primary.clean(total_bytes=8192)
    assert first_offset(path) > SMALL.log_file_bytes
    pass_on(path, replica)
    pass_files(path, replica)
    assert_alike(path, tmp_path / "replica")


def test_files_that_the_primary_has_deleted_are_deleted(primary, path, replica, tmp_path):
    fill(primary)
    pass_on(path, replica)
    primary.clean(total_bytes=8192)
    pass_on(path, replica)
    pass_files(path, replica)
    replica.clean(first_offset(path))
    assert_alike(path, tmp_path / "replica")
    replica.clean(1 << 40)
    assert_alike(path, tmp_path / "replica")


@pytest.mark.parametrize("late", [False, True])
def test_a_topic_that_was_deleted_and_created_again_is_alike(
    primary, path, replica, tmp_path, late
):
    """`late`: messages of the new topic arrive before the files that say so."""
    fill(primary)
    pass_on(path, replica)
    pass_files(path, replica)
    primary.topics.delete("t")
    primary.topics.create("t", read_queues=2, write_queues=2)
    if not late:
        pass_files(path, replica)
    fill(primary, 1)
    pass_on(path, replica)
    pass_files(path, replica)
    assert_alike(path, tmp_path / "replica")
    primary.topics.delete("t")
    pass_on(path, replica)
    pass_files(path, replica)
    assert_alike(path, tmp_path / "replica")


def test_bytes_at_another_offset_are_refused(primary, path, replica):
    fill(primary, 1)
    pass_on(path, replica)
    end = replica.end
    for offset in (0, end - 1, end + 1):
        with pytest.raises(PyrocketError) as caught:
            replica.receive(offset, b"x" * 10)
        assert caught.value.code == "REPLICA_OFFSET"
    assert replica.end == end


@pytest.mark.parametrize("at", [0, 4, 7, 20, 28, 35, 100, 599])
def test_changed_bytes_are_refused_and_nothing_of_them_is_written(
    primary, path, replica, tmp_path, at
):
    """The properties of a record have no checksum: their bytes are not changed."""
    primary.append(message(b"y" * 700))
    primary.append(message(b"z" * 700))
    start = first_offset(path)
    data = bytearray(log_bytes(path))
    data[at] ^= 1 << at % 8
    with pytest.raises(PyrocketError) as caught:
        replica.receive(start, bytes(data) + bytes(SMALL.log_file_bytes))
    assert caught.value.code == "REPLICA_RECORD"
    assert log_bytes(path).startswith(log_bytes(tmp_path / "replica"))
    replica.forget_rest()
    pass_on(path, replica)
    assert log_bytes(path) == log_bytes(tmp_path / "replica")


def test_other_names_of_files_are_refused(replica, tmp_path):
    for name in (
        "commitlog/0",
        "pyrocket/state",
        "../x",
        "config/../../x.json",
        "pyrocket/role.json",
    ):
        with pytest.raises(PyrocketError) as caught:
            replica.put(SmallFiles({name: b"{}"}))
        assert caught.value.code == "REPLICA_FILE"


def test_every_write_is_refused_and_reads_work(primary, path, replica, tmp_path):
    fill(primary)
    primary.groups.create("g")
    primary.groups.commit("g", "t", {0: 3})
    pass_on(path, replica)
    pass_files(path, replica)
    where = tmp_path / "replica"
    with Store.open(where, read_only=True) as store:
        assert bodies(store) == bodies(primary)
        assert store.groups.committed("g", "t") == {0: 3}
        assert [one.body for one in store.lookup.query("t", "k1")] == [b"keyed"]
        assert store.uuid == primary.uuid
        assert not store.deliver_due()
        for write in (
            lambda: store.append(message()),
            lambda: store.topics.create("u"),
            lambda: store.topics.delete("t"),
            lambda: store.groups.create("h"),
            lambda: store.groups.commit("g", "t", {0: 4}),
            lambda: store.set_retention(None),
            lambda: store.clean(hours=1),
            lambda: store.flush(),
            lambda: store.transactions.send_half("g", message()),
            lambda: store.timers.cancel("t", "id"),
            lambda: Store.open(where),
            lambda: repair(where),
        ):
            with pytest.raises(StoreReadOnlyError) as caught:
                write()
            assert caught.value.code == "REPLICA_READ_ONLY"
    assert log_bytes(where) == log_bytes(path)


def test_views_are_those_of_the_primary(primary, path, replica, tmp_path):
    fill(primary)
    due = primary.now() + 3_600_000
    primary.append(Message(topic="t", body=b"timed", queue_id=0, deliver_at_ms=due))
    pass_on(path, replica)
    pass_files(path, replica)
    with Store.open(tmp_path / "replica", read_only=True) as store:
        for view in ("scheduled", "half"):
            assert rows_of(store, view) == rows_of(primary, view)


def rows_of(store, view):
    return [
        row
        for part in store.views.pending(view)
        for batch in store.views.scan_pending(part, [], ["topic", "body"])
        for row in batch.to_pylist()
    ]


def test_a_snapshot_of_a_replica_is_a_store_of_its_own(primary, path, replica, tmp_path):
    fill(primary)
    pass_on(path, replica)
    pass_files(path, replica)
    with Store.open(tmp_path / "replica", read_only=True) as store:
        store.snapshot(tmp_path / "copy")
    with Store.open(tmp_path / "copy") as store:
        assert bodies(store) == bodies(primary)
        store.append(message(b"more"))


@pytest.mark.parametrize("clean", [False, True])
def test_a_follower_continues_after_a_restart_and_a_reboot(primary, path, tmp_path, clean):
    where = tmp_path / "replica"
    for number in range(4):
        follower = replica_of(path, where)
        fill(primary, 1)
        pass_on(path, follower, 97)
        pass_files(path, follower)
        follower.flush()
        follower.close(clean=clean)
        if number % 2:
            reboot(where)
        assert_alike(path, where)
    epoch = primary.history.epoch
    with Store.open(where, read_only=True) as store:
        assert store.history.epoch == epoch


def test_a_tail_that_the_primary_lacks_is_saved_and_cut(primary, path, tmp_path):
    where = tmp_path / "replica"
    follower = replica_of(path, where)
    fill(primary, 1)
    kept = published(path)
    fill(primary, 1)
    pass_on(path, follower)
    pass_files(path, follower)
    tail = log_bytes(path, kept)
    follower.cut(kept)
    (saved,) = Layout(where).own.glob("cut-*")
    assert saved.read_bytes() == tail
    follower = opened(where)
    assert follower.end == kept
    assert log_bytes(where) == log_bytes(path, 0, kept)
    pass_on(path, follower, 1000)
    assert_alike(path, where)
    follower.close(clean=True)


def test_a_replica_has_one_follower(primary, replica, tmp_path):
    with pytest.raises(PyrocketError) as caught:
        opened(tmp_path / "replica")
    assert caught.value.code == "STORE_IN_USE"


def test_the_config_of_the_primary_holds(path, tmp_path):
    config = StoreConfig(
        log_file_bytes=8192, broker_name="b", delay_levels="1s 7s", property_crc=True
    )
    with Store.open(path, create=True, config=config) as primary:
        primary.topics.create("t", read_queues=2, write_queues=2)
        fill(primary, 1)
        follower = replica_of(path, tmp_path / "replica")
        pass_on(path, follower)
        pass_files(path, follower)
        assert_alike(path, tmp_path / "replica")
        with Store.open(tmp_path / "replica", read_only=True) as store:
            assert store.config.delay_levels_text == "1s 7s"
            assert store.broker_name == "b"
        follower.close(clean=True)
