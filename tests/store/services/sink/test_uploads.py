"""Uploads interrupted at any point continue after the last acknowledged block."""

import os
from itertools import product

import pyarrow as pa
import pytest
from pyrocket import SinkBatch, Store
from pyrocket.base.clock import system_clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk import io
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder
from pyrocket.errors import SinkError
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.services.sink import staged_file
from pyrocket.services.sink.staging import StagingArea, staged_name
from pyrocket.services.sink.uploads import Uploads
from support.shares import share

NAME = staged_name(SinkBatch(identity="query", target="", batch=0), 0, 0)


@pytest.fixture(params=[3000, 10_000], ids=["a block", "some blocks"])
def area(request, tmp_path, monkeypatch):
    """A staging area whose segments have one block or some blocks."""
    monkeypatch.setattr(staged_file, "SEGMENT_BYTES", request.param)
    with Store.open(tmp_path / "store", create=True) as store:
        yield StagingArea(store._engine.layout)


def block(number):
    batch = pa.record_batch({"body": [b"%d-%d" % (number, row) * 50 for row in range(10)]})
    encoder = MessageEncoder(StoreConfig(), lambda: 1)
    columns = check_send_batch(batch)
    return [*encoder.encode_rows(batch, columns, "orders", 0, lambda name: AppendRoute(name, 4))]


def journal(area):
    return area.path(NAME).with_name(area.path(NAME).name + ".uploaded")


def test_a_name_outside_the_folder_of_a_batch_is_invalid(area):
    for name in ("", "x", "x/", "/x", "../x", "./x", "x/..", "x/.", "x/y/z", "x/\0"):
        with pytest.raises(ValueError, match="is not a staged file"):
            area.path(name)


def test_a_folder_that_another_process_deletes_at_any_step_is_created_again(area, monkeypatch):
    make, deleted = io._share_with_group, []

    def deleting(made, parent):
        if parent == area.root and len(deleted) < 3:
            area.path(NAME).parent.rmdir()
            deleted.append(parent)
        make(made, parent)

    monkeypatch.setattr(io, "_share_with_group", deleting)
    opened, opens = io.opened_folder, []

    def losing(path):
        if path == area.path(NAME).parent and len(opens) < 2:
            path.rmdir()
            opens.append(path)
        return opened(path)

    monkeypatch.setattr(io, "opened_folder", losing)
    os.close(area.open(NAME))
    assert area.path(NAME).exists()
    assert len(deleted) == 3
    assert len(opens) == 2


def test_a_store_whose_folder_cannot_be_created_is_an_error(area, monkeypatch):
    def making(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(io, "make_directory", making)
    with pytest.raises(FileNotFoundError):
        area.open(NAME)


def test_an_upload_continues_in_another_process_after_each_block(area):
    for number in range(6):
        Uploads(area, system_clock).add(NAME, number, block(number))
        Uploads(area, system_clock).add(NAME, number, block(number))
    end = Uploads(area, system_clock).finish(NAME, 6)
    assert Uploads(area, system_clock).finish(NAME, 6) == end
    with staged_file.StagedReader(area.path(NAME), *end) as reader:
        assert sum(one.rows for one in reader.blocks) == 60
        assert len({one.segment for one in reader.blocks}) > 1
        reader.check()
        assert sum(len(chunk.load()) for chunk in reader.chunks()) == 60


@pytest.mark.parametrize(("torn", "confirmed"), share(product([0, 1, 30], range(6)), 5))
def test_blocks_are_uploaded_again_after_the_journal_was_truncated(area, confirmed, torn):
    uploads = Uploads(area, system_clock)
    for number in range(6):
        uploads.add(NAME, number, block(number))
    lines = journal(area).read_bytes().splitlines(keepends=True)
    journal(area).write_bytes(b"".join(lines[:confirmed]) + lines[confirmed][:torn])
    again = Uploads(area, system_clock)
    for number in range(confirmed, 6):
        again.add(NAME, number, block(number))
    end = again.finish(NAME, 6)
    assert len(journal(area).read_bytes().splitlines()) >= len(lines)
    with staged_file.StagedReader(area.path(NAME), *end) as reader:
        reader.check()
        assert sum(len(chunk.load()) for chunk in reader.chunks()) == 60
        assert sum(one.rows for one in reader.blocks) == 60


def test_missing_blocks_are_rejected(area):
    uploads = Uploads(area, system_clock)
    with pytest.raises(SinkError) as caught:
        uploads.add(NAME, 1, block(1))
    assert caught.value.code == "UPLOAD_LOST"
    uploads.add(NAME, 0, block(0))
    with pytest.raises(SinkError):
        uploads.finish(NAME, 2)
    area.remove(NAME)
    with pytest.raises(SinkError):
        uploads.add(NAME, 1, block(1))
    with pytest.raises(SinkError):
        uploads.finish(NAME, 1)


def test_few_journals_are_kept_in_memory(area, monkeypatch):
    monkeypatch.setattr("pyrocket.services.sink.uploads._MAX_KNOWN", 2)
    uploads = Uploads(area, system_clock)
    batch = SinkBatch(identity="query", target="", batch=0)
    names = [staged_name(batch, partition, 0) for partition in range(5)]
    for number in range(3):
        for name in names:
            uploads.add(name, number, block(number))
    assert len(uploads._known) == 2
    assert all(uploads.finish(name, 3)[0] > 3 * 10 * 20 for name in names)
    assert area.bytes > 5 * 3 * 10 * 150


@pytest.mark.parametrize("damage", [b'{"x": 1}\n', b"\xff\n", b"[" * 200_000 + b"\n", b"[[1]]\n"])
def test_an_upload_with_a_damaged_journal_is_lost(area, damage):
    Uploads(area, system_clock).add(NAME, 0, block(0))
    journal(area).write_bytes(damage)
    with pytest.raises(SinkError, match="UPLOAD_LOST"):
        Uploads(area, system_clock).add(NAME, 1, block(1))
