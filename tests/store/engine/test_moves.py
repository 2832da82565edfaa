"""A service's appended messages and moved cursors survive a kill together or not at all."""

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import HALF_CURSOR, NEXT_DUE, OP_CURSOR, level_field
from pyrocket.engine.message_encoder import AppendRoute
from pyrocket.errors import StoreUnavailableError
from support.dying import DeathError, DyingAt
from support.inner import inner
from support.stores import SMALL, bodies, filled, message, words

MOVES = {level_field(3): 17, HALF_CURSOR: 4}


def send_and_move(store, moves=MOVES):
    """Append one message and move the cursors with it, as a service does."""
    writer = inner(store).writer
    to = AppendRoute("t", store.topics.get("t").write_queues)
    encoded = inner(store).encoder.encode_message(message(b"moved"), to).record
    with writer.exclusive():
        writer.append([encoded], moves=moves)


def values(path):
    page = words(path)
    try:
        return {word: page[word] for word in MOVES}
    finally:
        page.close()


def test_cursors_move_with_the_messages(tmp_path):
    with filled(tmp_path, 3) as store:
        send_and_move(store)
        assert values(tmp_path) == MOVES
        assert bodies(store)[0][-1] == b"moved"


def test_cursors_move_if_and_only_if_the_message_exists_after_a_kill(tmp_path, monkeypatch):
    step, moved = 0, set()
    while True:
        path = tmp_path / str(step)
        filled(path, 3).close()
        store = Store.open(path)
        try:
            with monkeypatch.context() as patch:
                DyingAt(patch, step, False)
                send_and_move(store)
            store.close()
            break
        except DeathError:
            inner(store).crash()
        with Store.open(path) as after:
            after.append(message(b"next"))
            there = b"moved" in bodies(after)[0]
            assert values(path) == (MOVES if there else dict.fromkeys(MOVES, 0)), step
            moved.add(there)
        step += 1
    assert moved == {True, False}


def test_a_failed_append_never_moves_cursors(tmp_path, monkeypatch):
    with filled(tmp_path, 3) as store:
        with monkeypatch.context() as patch:
            patch.setattr(io, "write_at", lambda *given: (_ for _ in ()).throw(OSError(28, "no")))
            with pytest.raises(StoreUnavailableError):
                send_and_move(store)
        store.append(message(b"next"))
        assert values(tmp_path) == dict.fromkeys(MOVES, 0)


def test_cursors_move_without_messages(tmp_path):
    with filled(tmp_path, 3) as store:
        with inner(store).writer.exclusive():
            inner(store).writer.move({OP_CURSOR: 9, HALF_CURSOR: 5})
        page = words(tmp_path)
        assert (page[OP_CURSOR], page[HALF_CURSOR]) == (9, 5)
        page.close()


def test_due_time_is_only_lowered(tmp_path):
    with filled(tmp_path, 1, config=SMALL):
        page = words(tmp_path)
        page[NEXT_DUE] = 100
        page.lower_due(200)
        assert page[NEXT_DUE] == 100
        page.lower_due(50)
        assert page[NEXT_DUE] == 50
        page.close()
