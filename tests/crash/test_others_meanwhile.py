"""Snapshots, checks and cleaning of a store that other processes use at the same time."""

import pytest
from crash.children import body_number, clean_and_append, produce, read_forever
from crash.nursery import wait_for
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.tools.verify.verify import verify
from support.stores import batch, bodies, log_files

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]


def test_snapshots_and_checks_while_two_processes_append(nursery, path, diaries, tmp_path):
    """Each copy has a prefix of each queue, with all messages acknowledged before the copy. A check
    of the store in use finds nothing wrong.
    """
    producers = [
        nursery.start(
            produce, path=path, diaries=diaries, producer=name, count=500, seed=seed, queues=2
        )
        for seed, name in enumerate("ab")
    ]
    wait_for(diaries / "a")
    copies = []
    for number in range(4):
        known = {name: acknowledged(diaries / name) for name in "ab"}
        with Store.open(path, read_only=bool(number % 2)) as store:
            store.snapshot(tmp_path / f"copy{number}")
        copies.append((tmp_path / f"copy{number}", known))
        report = verify(path)
        assert report.ok, report.findings
    assert [nursery.wait(process) for process in producers] == [0, 0]
    with Store.open(path, read_only=True) as store:
        everything = bodies(store)
    for copy, known in copies:
        assert not verify(copy).findings
        with Store.open(copy) as store:
            found = bodies(store)
            store.append_batch(batch([b"after"], 0), topic="t")
        for queue_id, rows in found.items():
            assert rows == everything[queue_id][: len(rows)]
        rows = [row for queue in found.values() for row in queue]
        for name, count in known.items():
            numbers = {body_number(row) for row in rows if row.startswith(f"{name}:".encode())}
            assert numbers >= set(range(count))
    with Store.open(path, read_only=True) as store:
        assert bodies(store) == everything
    assert verify(path).ok


def acknowledged(diary):
    lines = diary.read_text().split() if diary.exists() else []
    return int(lines[-1]) if lines else 0


def test_readers_of_deleted_files_get_an_error(nursery, path, tmp_path):
    """One process cleans and appends. Two processes read at old offsets, and get errors for lost
    messages, but never crash.
    """
    cleaner = nursery.start(clean_and_append, path=path, rounds=60, ready=tmp_path / "ready")
    wait_for(tmp_path / "ready")
    readers = [
        nursery.start(read_forever, path=path, result=tmp_path / f"read{number}", seed=number)
        for number in range(2)
    ]
    assert nursery.wait(cleaner) == 0
    (Layout(path).own / "done").touch()
    assert [nursery.wait(process) for process in readers] == [0, 0]
    counts = [(tmp_path / f"read{number}").read_text().split() for number in range(2)]
    assert all(int(rows) > 0 for rows, _ in counts)
    assert sum(int(losses) for _, losses in counts) > 0
    assert len(log_files(path)) <= 4
    (Layout(path).own / "done").unlink()
    report = verify(path)
    assert report.ok, report.findings
