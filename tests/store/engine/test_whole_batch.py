"""The first eight bytes of a whole batch are written last, so that no reader sees a part of it."""

import os

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import PUBLISHED
from support.stores import (
    SMALL,
    batch,
    before_publishing,
    bodies,
    filled,
    log_files,
    numbered,
    overwrite,
    reboot,
    words,
)

ROWS = numbered(120, first=100)
"""Bodies whose records need more than two log files."""


@pytest.fixture
def path(tmp_path):
    filled(tmp_path / "store").close()
    return tmp_path / "store"


class Journal:
    """Records the operations on the log in order, and can stop before one of them."""

    def __init__(self, monkeypatch, stop_before=None):
        self.steps, self._stop_before = [], stop_before
        for name in ("write_at", "sync"):
            monkeypatch.setattr(io, name, self._instead(name, getattr(io, name)))
        before_publishing(monkeypatch, lambda value: self._record("published", value))

    def _instead(self, name, real):
        def operation(descriptor, *rest):
            file = os.readlink(f"/proc/self/fd/{descriptor}")
            if "commitlog" in file:
                data = bytes(rest[0]) if rest else b""
                self._record(name, (int(os.path.basename(file)), data))
            return real(descriptor, *rest)

        return operation

    def _record(self, name, what):
        if len(self.steps) == self._stop_before:
            raise SystemExit
        self.steps.append((name, what))


def test_the_head_is_written_between_two_fsyncs_and_published_after_them(path, monkeypatch):
    with Store.open(path, config=SMALL) as store:
        journal = Journal(monkeypatch)
        store.append_batch(batch(ROWS, 0), topic="t", whole=True)
        names = [name for name, _ in journal.steps]
        head = next(at for at, (_, what) in enumerate(journal.steps) if head_of_record(what))
        assert "sync" in names[:head]
        assert "write_at" not in names[names.index("sync") : head]
        assert names[head:] == ["write_at", "sync", "published"]
        assert bodies(store)[0] == numbered(40) + ROWS
        monkeypatch.undo()


def head_of_record(what):
    return isinstance(what, tuple) and len(what[1]) == 8 and what[1][4:] == b"\xda\xa3\x20\xa7"


def test_every_file_of_the_batch_is_durable_before_its_head(path, monkeypatch):
    with Store.open(path, config=SMALL) as store:
        before = {int(file.name) for file in log_files(path)}
        journal = Journal(monkeypatch)
        store.append_batch(batch(ROWS, 0), topic="t", whole=True)
        head = next(at for at, (_, what) in enumerate(journal.steps) if head_of_record(what))
        synced = {what[0] for name, what in journal.steps[:head] if name == "sync"}
        new = {int(file.name) for file in log_files(path)} - before
        assert len(new) >= 2
        assert new <= synced
        monkeypatch.undo()


def test_a_power_loss_at_any_step_leaves_all_records_or_none(path, monkeypatch):
    """The recovery finds only the files, no shared state."""
    for step in range(1000):
        store = Store.open(path, config=SMALL)
        known = bodies(store)[0]
        with monkeypatch.context() as patch:
            journal = Journal(patch, stop_before=step)
            try:
                store.append_batch(batch(ROWS, 0), topic="t", whole=True)
                ended = True
            except SystemExit:
                ended = False
        store.close(clean=False)
        reboot(path)
        with Store.open(path, config=SMALL) as recovered:
            found = bodies(recovered)[0]
        assert found in (known, known + ROWS)
        head_written = any(head_of_record(what) for _, what in journal.steps)
        assert (found == known + ROWS) == head_written
        if ended:
            break
    assert ended
    assert step > 5


def test_records_after_an_unfinished_batch_never_reappear(path):
    """Its later records are complete on disk, and must not become visible with the next append."""
    with Store.open(path, config=SMALL) as store:
        page = words(path)
        end = page[PUBLISHED]
        store.append_batch(batch(ROWS, 0), topic="t", whole=True)
        page.close()
        store.close(clean=False)
    file = next(one for one in reversed(log_files(path)) if int(one.name) <= end)
    place = end - int(file.name)
    head = file.read_bytes()[place : place + 8]
    if head[4:] == b"\xcb\xd4\x31\x94":  # A blank record: the batch starts in the next file.
        file, place = file.with_name(f"{int(file.name) + 4096:020d}"), 0
    overwrite(file, bytes(8), place)
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(40)
        store.append_batch(batch([b"next"], 0), topic="t")
        store.close(clean=False)
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == [*numbered(40), b"next"]
