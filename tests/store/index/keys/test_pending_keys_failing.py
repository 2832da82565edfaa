"""Appends whose keys cannot be saved, or whose writer is killed: the index stays correct."""

import os

import pytest
from pyrocket.disk import io
from pyrocket.disk.shared_state import SharedState
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.keyed import check_queries, contents, fill, java, limit_index


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_full_disk_delays_the_index_but_not_appends(store, path, monkeypatch, caplog, eagerly):
    if eagerly:
        limit_index(store, catch_up_bytes=1)
    real = io.write_at
    for step in range(6):
        taken = []

        def write(descriptor, data, at, taken=taken, step=step):
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if "/index/" in name or name.endswith("/keys"):
                taken.append(name)
                if len(taken) > step:
                    raise OSError(28, "No space left on device")
            real(descriptor, data, at)

        with monkeypatch.context() as patch:
            patch.setattr(io, "write_at", write)
            fill(store, 5, 10 * step)
            check_queries(store, 10 * step + 5)
        fill(store, 5, 10 * step + 5)
    assert "No space left" in caplog.text
    check_queries(store, 60)
    expected = java(store)
    store.close()
    assert contents(path) == expected


@pytest.mark.parametrize("half", [False, True], ids=["between", "torn"])
@pytest.mark.parametrize("put", [False, True], ids=["saved", "put"])
def test_after_a_crash_at_any_step_of_an_append_the_index_can_be_rebuilt(
    open_store, at_open, path, monkeypatch, half, put
):
    """Another writer and a newly opened store continue; both save keys and index pending keys."""
    at_open.append(lambda store: limit_index(store, put_items=1 if put else 60, slice_bytes=1))
    survivor, died, step = open_store(), True, 0
    fill(survivor, 3)
    while died:
        dead, died = open_store(), False
        with monkeypatch.context() as patch:
            end = DyingAt(patch, step, half)
            set_word = end.instead("word", SharedState.__setitem__)
            patch.setattr(SharedState, "__setitem__", set_word)
            try:
                fill(dead, 5, 1000 * step)
            except DeathError:
                died = True
        dead.close(clean=False)
        fill(survivor if step % 2 else open_store(), 2, 1000 * step + 500)
        step += 1
        assert step < 150
    assert step > (5 if half else 12)
    with open_store(read_only=True) as reader:
        found = reader.lookup.query("t", "all", max_messages=10**6)
        assert len(found) == len(reader.read("t", 0, 0, 10**6))
    with inner(survivor).writer.exclusive():
        inner(survivor).keys.complete()
    assert contents(path) == java(survivor)
