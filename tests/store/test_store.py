"""Opening, creating and closing."""

import shutil
from dataclasses import replace

import pytest
from pyrocket import PyrocketError, Store, StoreConfig
from pyrocket.engine.writer import Writer
from pyrocket.errors import (
    InvalidInputError,
    StoreDamagedError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from support.slices import span_of
from support.stores import SMALL, batch, bodies, filled, message, numbered, snapshot


@pytest.mark.parametrize("read_only", [False, True])
def test_a_missing_directory_is_reported_and_not_created(path, read_only):
    with pytest.raises(StoreNotFoundError, match=str(path)) as caught:
        Store.open(path, read_only=read_only)
    assert caught.value.code == "STORE_NOT_FOUND"
    assert "Store.open(path, create=True)" in caught.value.remedy
    assert not path.exists()


def test_a_missing_store_opened_read_only_is_never_created(path):
    with pytest.raises(StoreNotFoundError):
        Store.open(path, create=True, read_only=True)
    assert not path.exists()


@pytest.mark.parametrize("create", [False, True])
def test_a_file_instead_of_a_directory_is_rejected(path, create):
    path.write_text("not a store")
    with pytest.raises(StoreNotFoundError) as caught:
        Store.open(path, create=create)
    assert caught.value.code == "STORE_NOT_A_DIRECTORY"
    assert path.read_text() == "not a store"


def test_no_store_is_created_in_a_directory_with_other_files(path):
    path.mkdir()
    (path / "thesis.tex").write_text("dear")
    with pytest.raises(StoreNotFoundError, match=r"thesis\.tex") as caught:
        Store.open(path, create=True)
    assert caught.value.code == "STORE_DIRECTORY_NOT_EMPTY"
    assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]


def test_empty_directory_and_missing_parents_become_a_store(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        with Store.open(place, create=True, config=SMALL) as made:
            made.append(message())
        assert bodies(Store.open(place, read_only=True))[0] == [b"x"]


def test_a_store_that_is_being_created_is_not_a_store_yet(path, open_store):
    open_store().close()
    (path / "pyrocket" / "store.json").unlink()
    with pytest.raises(StoreNotFoundError):
        Store.open(path, read_only=True)
    open_store().append(message())


def test_create_on_an_existing_store_opens_it(open_store):
    first = open_store()
    first.append(message(b"kept"))
    second = open_store()
    assert second.uuid == first.uuid
    assert bodies(second)[0] == [b"kept"]


def test_sizes_and_broker_name_of_the_directory_take_precedence(open_store, path):
    open_store(config=replace(SMALL, broker_name="broker-x")).close()
    other = open_store(config=StoreConfig(log_file_bytes=8192, queue_file_entries=77))
    assert other.broker_name == "broker-x"
    other.append_batch(batch(numbered(40), 0), topic="t")
    assert {file.stat().st_size for file in (path / "commitlog").iterdir()} == {4096}
    assert {file.stat().st_size for file in path.glob("consumequeue/t/0/*")} == {200}


def test_sizes_that_differ_from_the_directory_cause_one_warning(open_store, path, caplog):
    open_store().close()
    assert not caplog.records, "only values that differ are mentioned"
    for read_only in (True, False):
        other = replace(SMALL, log_file_bytes=8192, index_items=99, broker_name="broker-x")
        open_store(config=other, read_only=read_only)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    for text in ("log_file_bytes 4096; 8192", "index_items 80; 99", "broker_name 'broker-a'"):
        assert f"{path} keeps its {text}" in caplog.text


def test_the_log_of_a_new_store_does_not_start_at_zero(store, path):
    assert store.append(message()).physical_offset == 4096
    assert [file.name for file in (path / "commitlog").iterdir()] == ["00000000000000004096"]


def test_a_corrupt_identity_is_reported(open_store, path):
    open_store().close()
    (path / "pyrocket" / "store.json").write_text("{")
    with pytest.raises(StoreDamagedError, match=r"store\.json"):
        open_store()


def test_close_is_idempotent_and_prevents_writes(store):
    store.append(message())
    store.close()
    store.close()
    for write in (lambda: store.append(message()), store.flush, lambda: store.topics.create("u")):
        with pytest.raises(StoreReadOnlyError, match="closed"):
            write()


def test_abort_exists_from_the_first_append_until_the_last_writer_closes_cleanly(open_store, path):
    first = open_store()
    first.topics.create("t")
    assert not (path / "abort").exists()
    first.append(message())
    assert (path / "abort").exists()
    second = open_store()
    first.close()
    assert (path / "abort").exists()
    second.close()
    assert not (path / "abort").exists()


def test_a_store_that_is_being_closed_does_not_prevent_another_process_from_opening_it(
    open_store, monkeypatch
):
    """The closing writer holds the store exclusively only until its clean shutdown has ended."""
    first, opened = open_store(), []
    first.append(message())
    release = Writer._release

    def open_another_first(writer):
        if not opened:
            opened.append(open_store())
        release(writer)

    monkeypatch.setattr(Writer, "_release", open_another_first)
    first.close()
    opened[0].append(message())
    assert bodies(opened[0])[0] == [b"x", b"x"]


def test_an_unclean_close_leaves_abort_for_the_next_clean_close(open_store, path):
    first = open_store()
    first.append(message())
    first.close(clean=False)
    assert (path / "abort").exists()
    open_store().close()
    assert not (path / "abort").exists()


def test_a_read_only_store_rejects_every_write(store, open_store):
    store.topics.create("t")
    reader = open_store(read_only=True)
    assert reader.read_only
    writes = [
        lambda: reader.append(message()),
        lambda: reader.append_batch(batch([b"x"]), topic="t"),
        lambda: reader.topics.create("u"),
        lambda: reader.topics.update("t", write_queues=2),
        lambda: reader.topics.delete("t"),
        lambda: reader.flush(),
        lambda: reader.set_retention(None),
    ]
    for write in writes:
        with pytest.raises(StoreReadOnlyError) as caught:
            write()
        assert caught.value.code == "STORE_READ_ONLY"


def test_read_only_store_writes_nothing_at_all(path):
    filled(path).close()
    before = snapshot(path)
    with Store.open(path, read_only=True) as reader:
        assert len(bodies(reader)[0]) == 40
        reader.read("t", 0, 0)
        reader.offset_by_time("t", 0, 0)
        span_of(reader, "t", 0, 0, 40)
        reader.position()
        reader.topics.all()
        assert reader.history.cut_since(0, "t", 0) is None
        with pytest.raises(PyrocketError):
            reader.read("t", 0, 999)
    assert snapshot(path) == before


def test_reader_follows_a_writer_without_opening_again(store, open_store):
    store.topics.create("t", read_queues=1, write_queues=1)
    reader = open_store(read_only=True)
    before = reader.position()
    assert reader.position() == before
    for n in range(30):
        store.append(message(b"%d" % n))
        assert reader.max_offset("t", 0) == n + 1
    assert reader.position() != before
    store.topics.create("u")
    assert "u" in reader.topics.all()


def test_a_writer_does_not_write_to_a_removed_directory(open_store, path):
    old = open_store()
    old.append(message(b"old"))
    shutil.rmtree(path)
    new = open_store()
    new.append(message(b"new"))
    with pytest.raises(PyrocketError) as caught:
        old.append(message(b"stray"))
    assert caught.value.code == "STORE_REPLACED"
    old.close()
    assert (path / "abort").exists()
    new.append(message(b"newer"))
    assert bodies(new)[0] == [b"new", b"newer"]


def test_an_unknown_file_in_the_log_folder_is_reported(open_store, path):
    open_store().append(message())
    foreign = path / "commitlog" / "notes.txt"
    foreign.write_text("hello")
    with pytest.raises(StoreDamagedError, match=r"notes\.txt") as caught:
        open_store(read_only=True).offsets("t")
    assert caught.value.code == "STORE_FOREIGN_FILE"
    foreign.unlink()


def test_errors_have_code_message_and_remedy(store):
    with pytest.raises(InvalidInputError) as caught:
        store.topics.get("t")
    error = caught.value
    assert str(error) == f"[{error.code}] {error.message} {error.remedy}"
