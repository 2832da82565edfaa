"""A reader waits while a writer recovers: the queues are cut and rebuilt meanwhile."""

import threading

import pytest
from pyrocket import Message, Store, reader
from pyrocket.disk.state_page import StatePage
from pyrocket.errors import StoreUnavailableError


@pytest.fixture
def root(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        for number in range(100):
            store.append(Message(topic="T", body=b"%d" % number, queue_id=0))
    return tmp_path / "store"


def test_a_reader_sees_whole_queues_before_and_after_a_recovery(root, monkeypatch):
    from pyrocket import writer

    started, finish = threading.Event(), threading.Event()
    recover = writer.recover

    def slow(*arguments, **named):
        started.set()
        finish.wait(10)
        return recover(*arguments, **named)

    monkeypatch.setattr(writer, "recover", slow)
    page = StatePage(root / "pyrocket/state", writable=True)
    with Store.open(root, read_only=True) as looking:
        assert looking.max_offset("T", 0) == 100
        page[0] = 0
        thread = threading.Thread(target=lambda: Store.open(root).close())
        thread.start()
        started.wait(10)
        timer = threading.Timer(0.2, finish.set)
        timer.start()
        assert looking.max_offset("T", 0) == 100
        assert finish.is_set()
        thread.join()
    page.close()


def test_a_recovery_that_never_ends_is_named(root, monkeypatch):
    monkeypatch.setattr(reader, "_RECOVERY_SECONDS", 0.1)
    page = StatePage(root / "pyrocket/state", writable=True)
    page.distrust()
    page.close()
    with Store.open(root, read_only=True) as store:
        with pytest.raises(StoreUnavailableError, match="STORE_RECOVERING"):
            store.offsets("T")
        Store.open(root).close()
        assert store.max_offset("T", 0) == 100
