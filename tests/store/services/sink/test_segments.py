"""Many rows are staged in several files, which are deleted one by one as they are published."""

from threading import Thread

import pytest
from pyrocket.disk import io
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED
from pyrocket.errors import SinkError, StoreUnavailableError
from pyrocket.services.sink.staged_file import StagedReader
from support.sinks import numbered, publish, stage, staged_files
from support.stores import batch, bodies, overwrite, words

MAGIC = b"\xda\xa3\x20\xa7"
ROWS = [b"%03d" % number + b"." * 500 for number in range(60)]


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr("pyrocket.services.sink.staged_file.SEGMENT_BYTES", 4000)


def staged_in_pieces(store, one, **more):
    """Stage six blocks, three to a segment."""
    with store.sink.stage(one, partition=0, attempt=0) as stager:
        for at in range(0, 60, 4):
            stager.append(batch(ROWS[at : at + 4], 0), topic="t", **more)
        return stager.finish()


def test_rows_of_several_segments_are_published_completely_and_in_order(path, store, reader):
    one = numbered(0)
    staged = staged_in_pieces(reader, one)
    files = staged_files(path)
    assert len(files) > 5
    assert {file.partition(".")[0] for file in files} == {staged.name}
    store.sink.publish(one, [staged, stage(reader, one, [b"last"], 1, queue_id=0)])
    assert bodies(store)[0] == [*ROWS, b"last"]
    assert staged_files(path) == []


def test_segment_is_deleted_after_it_was_appended(path, store, reader, monkeypatch):
    one = numbered(0)
    staged = staged_in_pieces(reader, one)
    left, real = [], io.write_at

    def count(descriptor, data, at):
        left.append(len(staged_files(path)))
        real(descriptor, data, at)

    monkeypatch.setattr(io, "write_at", count)
    store.sink.publish(one, [staged])
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 5


def test_a_publication_repeated_while_it_runs_is_dropped(store, reader, monkeypatch):
    """A client repeats the call if its connection is lost; the broker still executes the first."""
    one, results, drop = numbered(0), [], StagedReader._drop
    staged = staged_in_pieces(reader, one)

    def repeat():
        try:
            results.append(store.sink.publish(one, [staged]).dropped)
        except SinkError as error:
            results.append(error)

    again = Thread(target=repeat)

    def dropped(file, segment):
        drop(file, segment)
        if segment and again.ident is None:
            again.start()
            again.join(0.3)

    monkeypatch.setattr(StagedReader, "_drop", dropped)
    assert not store.sink.publish(one, [staged]).dropped
    again.join()
    assert results == [True]
    assert bodies(store)[0] == ROWS


@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_damaged_segment_is_rejected_before_any_write(path, store, reader, number, damage):
    one = numbered(0)
    staged = staged_in_pieces(reader, one)
    file = path / "pyrocket" / "staging" / f"{staged.name}.{number}"
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-9] if damage == "short" else data[:-9] + b"+" + data[-8:])
    before = store.position()
    with pytest.raises(SinkError, match="was changed or has lost bytes"):
        store.sink.publish(one, [staged])
    assert store.position() == before


def test_staged_files_of_a_failed_publication_are_rejected(path, store, reader, monkeypatch):
    """The failed publication has deleted the first segments; the query stages its rows again."""
    one = numbered(0)
    staged = staged_in_pieces(reader, one)
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", Full(20_000))
        with pytest.raises(StoreUnavailableError, match="No space left"):
            store.sink.publish(one, [staged])
    assert bodies(store)[0] == []
    with pytest.raises(SinkError) as caught:
        store.sink.publish(one, [staged])
    assert caught.value.code == "STAGED_BROKEN"
    publish(store, 0, ROWS, queue_id=0)
    assert bodies(store)[0] == ROWS
    assert staged_files(path) == []


class Full:
    """A disk with room for a given number of bytes."""

    def __init__(self, room):
        self._room, self._write = room, io.write_at

    def __call__(self, descriptor, data, at):
        self._room -= len(data)
        if self._room < 0:
            raise OSError(28, "No space left on device")
        self._write(descriptor, data, at)


@pytest.mark.parametrize("how", ["discarded", "left", "repeated"])
def test_segments_are_deleted_with_their_file(path, store, reader, how):
    one = numbered(0)
    publish(store, 0, ROWS)
    staged = staged_in_pieces(reader, one)
    if how == "discarded":
        reader.sink.discard([staged])
    elif how == "left":
        publish(store, 1, ROWS)
    else:
        assert store.sink.publish(one, [staged], on_difference="drop").dropped
    assert staged_files(path) == []


def test_unfinished_stager_deletes_its_segments(path, reader):
    with reader.sink.stage(numbered(0), partition=0, attempt=0) as stager:
        for _ in range(5):
            stager.append(batch(ROWS[:4], 0), topic="t")
        assert len(staged_files(path)) > 1
    assert staged_files(path) == []


def test_a_full_disk_fails_the_task_and_leaves_nothing(path, reader, monkeypatch):
    monkeypatch.setattr(io, "write_at", Full(3000))
    with pytest.raises(StoreUnavailableError, match="rows could not be staged"):
        stage(reader, numbered(0), ROWS)
    assert staged_files(path) == []


def test_queue_entries_of_rows_whose_staged_file_is_damaged_are_read_from_the_log(
    path, store, reader
):
    """The staged file is damaged after its records were copied, but before its columns are read."""
    one = numbered(0)
    staged = staged_in_pieces(reader, one)
    file = path / "pyrocket" / "staging" / staged.name
    page = words(path)

    def damage(descriptor, data, at):
        real(descriptor, data, at)
        if bytes(data[4:]) == MAGIC:  # The head, which is written last.
            overwrite(file, bytes(staged.file_bytes), 0)

    real = io.write_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "write_at", damage)
        store.sink.publish(one, [staged])
    assert page[DISPATCHED] == page[PUBLISHED]
    page.close()
    assert bodies(store)[0] == ROWS
