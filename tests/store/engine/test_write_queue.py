"""Concurrent appends share an exclusive section; each has its own result."""

import threading
import time

import pytest
from pyrocket.disk import io
from pyrocket.errors import MessageError, StoreUnavailableError, TopicNotFoundError
from support.inner import inner
from support.stores import batch, before_publishing, bodies, message


class Crowd:
    """Threads that wait in the queue while the first thread is in the exclusive section."""

    def __init__(self, store, monkeypatch):
        self.store, self.answers, self.threads = store, {}, []
        self._queue = inner(store).group_append
        self._in_section, self._go_on = threading.Event(), threading.Event()
        roll_forward = inner(store).appender.roll_forward

        def wait_inside():
            self._in_section.set()
            assert self._go_on.wait(10)
            roll_forward()

        monkeypatch.setattr(inner(store).appender, "roll_forward", wait_inside)

    def do(self, name, work):
        def run():
            try:
                self.answers[name] = work()
            except Exception as error:
                self.answers[name] = error

        thread = threading.Thread(target=run)
        before = len(self._queue._waiting)
        thread.start()
        self.threads.append(thread)
        if len(self.threads) == 1:
            assert self._in_section.wait(10)
            return
        deadline = time.monotonic() + 60
        while len(self._queue._waiting) == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def finish(self):
        self._go_on.set()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()
        return self.answers


@pytest.fixture
def crowd(store, monkeypatch):
    for topic in "tu":
        store.topics.create(topic, read_queues=1, write_queues=1)
    return Crowd(store, monkeypatch)


def test_waiting_appends_are_published_together_in_their_order(crowd, monkeypatch):
    store = crowd.store
    published = []
    for number in range(6):
        crowd.do(number, lambda number=number: store.append(message(b"%d" % number)))
    before_publishing(monkeypatch, published.append)
    answers = crowd.finish()
    assert len(published) == 2, "the first append alone, then all other appends"
    assert [answers[number].queue_offset for number in range(6)] == list(range(6))
    assert bodies(store)[0] == [b"%d" % number for number in range(6)]


def test_a_rejected_append_does_not_affect_the_others(crowd, monkeypatch):
    store = crowd.store
    crowd.do("first", lambda: store.append(message(b"first")))
    crowd.do("deleted", lambda: store.append(message(b"lost", topic="u")))
    crowd.do("large", lambda: store.append_batch(batch([b"." * 4090], 0), topic="t"))
    crowd.do("good", lambda: store.append(message(b"good")))
    left = {name: topic for name, topic in inner(store).reader.topics.all().items() if name != "u"}
    monkeypatch.setattr(inner(store).engine, "known_topics", lambda: left)
    answers = crowd.finish()
    assert isinstance(answers["deleted"], TopicNotFoundError)
    assert isinstance(answers["large"], MessageError)
    assert answers["large"].code == "RECORD_TOO_LARGE"
    assert answers["good"].queue_offset == 1
    assert bodies(store)[0] == [b"first", b"good"]


def test_a_failed_write_fails_all_appends_of_the_group(crowd, monkeypatch):
    store = crowd.store
    crowd.do("first", lambda: store.append(message(b"first")))
    crowd.do("a", lambda: store.append(message(b"a")))
    crowd.do("b", lambda: store.append(message(b"b")))
    real = io.write_at

    def full(descriptor, data, offset):
        if b"UNIQ_KEY" in bytes(data) and b"first" not in bytes(data):
            raise OSError(28, "No space left on device")
        real(descriptor, data, offset)

    monkeypatch.setattr(io, "write_at", full)
    answers = crowd.finish()
    monkeypatch.setattr(io, "write_at", real)
    assert answers["first"].queue_offset == 0
    for name in "ab":
        assert isinstance(answers[name], StoreUnavailableError)
        assert answers[name].code == "WRITE_FAILED"
    assert answers["a"] is not answers["b"], "each thread raises an error of its own"
    assert store.append(message(b"again")).queue_offset == 1
    assert bodies(store)[0] == [b"first", b"again"]


def test_an_interrupt_is_raised_in_the_interrupted_thread_only(store, monkeypatch):
    """The other threads get an error about the unknown result; no thread waits for ever."""
    store.topics.create("t", read_queues=1, write_queues=1)
    queue, writer = inner(store).group_append, inner(store).writer
    entered, go_on, answers = threading.Event(), threading.Event(), {}

    def interrupted(batches, **options):
        entered.set()
        assert go_on.wait(10)
        raise KeyboardInterrupt

    append = writer.append
    monkeypatch.setattr(writer, "append", interrupted)

    def lead():
        with pytest.raises(KeyboardInterrupt):
            store.append(message(b"a"))

    leader = threading.Thread(target=lead)
    leader.start()
    assert entered.wait(10)
    follower = threading.Thread(target=lambda: answers.update(result=store.append(message(b"b"))))
    follower.start()
    while not queue._waiting:
        time.sleep(0.001)
    monkeypatch.setattr(writer, "append", append)
    go_on.set()
    leader.join(10)
    follower.join(10)
    assert answers["result"].queue_offset == 0
    assert bodies(store)[0] == [b"b"]


def test_appends_grouped_with_an_interrupted_one_report_an_unknown_result(crowd, monkeypatch):
    """One thread appends for both: this thread gets the interrupt, the other thread an error."""
    store = crowd.store
    crowd.do("first", lambda: store.append(message(b"first")))

    def send(body):
        try:
            return store.append(message(body))
        except KeyboardInterrupt:
            return "interrupted"

    crowd.do("a", lambda: send(b"a"))
    crowd.do("b", lambda: send(b"b"))
    append = inner(store).writer.append

    def interrupted(batches, **options):
        if len(batches) == 1:
            return append(batches, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(inner(store).writer, "append", interrupted)
    answers = crowd.finish()
    assert answers["first"].queue_offset == 0
    (other,) = [answers[name] for name in "ab" if answers[name] != "interrupted"]
    assert other.code == "APPEND_INTERRUPTED"
    assert "not known" in str(other)
