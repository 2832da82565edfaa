"""A reader without the write lock always sees all undecided half messages."""

import threading

import pytest
from pyrocket.disk.shared_state import HALF_CURSOR
from pyrocket.engine.appender import Appender
from pyrocket.engine.reader import Reader
from pyrocket.services.transactions import half_messages
from support.halves import MINUTE, Held, Listener, producer
from support.inner import inner
from support.stores import message, words


@pytest.fixture
def asking(store, clock):
    """A producer with an undecided half message, which its next check will renew."""
    with producer(Held(store), "pg", Listener(None)) as one:
        one.send(message(b"half"))
        clock.now += MINUTE
        yield one


@pytest.fixture
def looking(store, open_store):
    """The same directory, opened read-only."""
    return open_store(read_only=True)


def undecided(store):
    return [(half.queue_offset, half.checks) for half in store.transactions.pending()]


def planned(store):
    return [(part.start, part.end) for part in store.views.pending("half")]


@pytest.mark.parametrize(("look", "copy"), [(undecided, (1, 1)), (planned, (1, 2))])
def test_undecided_message_is_listed_while_it_is_renewed(
    asking, looking, path, monkeypatch, look, copy
):
    reveal, seen = Appender._reveal, []

    def reveal_later(self, *args):
        monkeypatch.undo()
        page = words(path)
        assert page[HALF_CURSOR] == 1, "the cursor has moved"
        page.close()
        thread = threading.Thread(target=lambda: seen.append(look(looking)))
        thread.start()
        thread.join(0.1)
        reveal(self, *args)
        thread.join()

    monkeypatch.setattr(Appender, "_reveal", reveal_later)
    asking.check_now()
    assert seen == [[copy]]


def test_undecided_message_is_listed_after_interrupted_renewal(asking, looking, monkeypatch):
    class Killed(BaseException):
        pass

    def die(self, *args):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "_reveal", die)
        with pytest.raises(Killed):
            asking.check_now()
    monkeypatch.setattr(half_messages, "_MAX_WAIT_SECONDS", 0.01)
    assert undecided(looking) == [(0, None)]


@pytest.mark.parametrize("nth", [1, 2])
def test_an_undecided_message_is_listed_when_renewed_during_the_read(
    asking, looking, monkeypatch, nth
):
    """Writers may append while the reader reads the two queues one after the other."""
    offsets, calls = Reader.system_offsets, []

    def put_back_before_the_nth(self, *args):
        if self is inner(looking).reader:
            calls.append(args)
            if len(calls) == nth:
                asking.check_now()
        return offsets(self, *args)

    monkeypatch.setattr(Reader, "system_offsets", put_back_before_the_nth)
    assert undecided(looking) == [(1, 1)]
    assert len(calls) >= 2
