"""After a clean end a store opens at once, in the next boot too; after another it recovers."""

import shutil

import pytest
from pyrocket import Store, recovering
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import PUBLISHED, RESTED, StatePage
from pyrocket.errors import StoreDamagedError
from stores import SMALL, FakeClock, bodies, filled, log_files, message, numbered, overwrite, words

_BOOT_WORD = 8


@pytest.fixture
def recoveries(monkeypatch):
    """Counts the recoveries that look at the log."""
    done, real = [], recovering.recover

    def recover(*arguments, **named):
        done.append(named["clean"])
        return real(*arguments, **named)

    monkeypatch.setattr(recovering, "recover", recover)
    return done


@pytest.fixture
def rested(tmp_path, recoveries):
    """A store of 40 messages that was closed cleanly, in an earlier boot."""
    path = tmp_path / "store"
    filled(path).close()
    next_boot(path)
    recoveries.clear()
    return path


def next_boot(path):
    page = words(path)
    page[_BOOT_WORD] ^= 1
    page.close()


def reopened(path):
    """Open for writing, see that all is there and goes on, and close."""
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(40)
        assert store.append(message(b"next")).queue_offset == 40


def test_after_a_clean_end_the_next_boot_has_nothing_to_recover(rested, recoveries):
    reopened(rested)
    assert recoveries == []


def test_an_unclean_end_in_the_next_boot_is_recovered(rested, recoveries):
    store = Store.open(rested, config=SMALL)
    store.append(message(b"more"))
    page = words(rested)
    assert page[RESTED] == 0
    page.close()
    store.close(clean=False)
    next_boot(rested)
    Store.open(rested, config=SMALL).close()
    assert recoveries == [False]


def test_a_java_broker_that_ran_since_is_noticed(rested, recoveries):
    Layout(rested).lock.write_bytes(b"lock")
    reopened(rested)
    assert recoveries == [True]


def test_a_copy_is_looked_at_first(rested, recoveries, tmp_path):
    shutil.copytree(rested, tmp_path / "copy")
    reopened(tmp_path / "copy")
    assert recoveries == [True]


def test_a_log_that_goes_on_behind_the_end_is_looked_at(rested, recoveries):
    page = words(rested)
    last = log_files(rested)[-1]
    overwrite(last, b"\x01", page[PUBLISHED] - int(last.name) + 3)
    page.close()
    reopened(rested)
    assert recoveries == [True]


def test_a_log_that_lost_its_last_file_is_no_clean_end(rested, recoveries):
    log_files(rested)[-1].unlink()
    with pytest.raises(StoreDamagedError, match="STORE_FILE_MISSING"):
        Store.open(rested, config=SMALL)
    assert recoveries == [True]


def test_an_abort_file_is_believed_before_the_words(rested, recoveries):
    Layout(rested).abort.touch()
    reopened(rested)
    assert recoveries == [False]


def test_the_words_are_durable_before_the_end_is_called_clean(tmp_path, monkeypatch):
    path, done = tmp_path / "store", []
    store = filled(path)
    rest = StatePage.rest

    def note(page):
        done.append(Layout(path).abort.exists())
        rest(page)

    monkeypatch.setattr(StatePage, "rest", note)
    store.close()
    assert done == [True]
    assert not Layout(path).abort.exists()


def test_a_time_centuries_ahead_in_the_last_record_is_not_followed(tmp_path):
    """No checksum covers it: a flipped bit must not date all later messages."""
    path, clock = tmp_path / "store", FakeClock()
    with filled(path, count=3, clock=clock) as store:
        place = store.read("t", 0, 2)[0].physical_offset
    last = log_files(path)[-1]
    overwrite(last, (clock.now << 12).to_bytes(8, "big"), place - int(last.name) + 56)
    Layout(path).abort.touch()
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.append(message(b"after"))
        assert store.read("t", 0, 3)[0].store_timestamp == clock.now
