"""Services run after each write or in a thread, and are retried after failures."""

import threading
import time

from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock
from pyrocket.disk.shared_state import NEVER, NEXT_DUE
from pyrocket.engine.service_runner import POLL_MS, RETRY_MS, ServiceRunner
from pyrocket.errors import StoreDamagedError
from pyrocket.testing import FileClock
from support.delivering import Driver, bodies_of, delay
from support.inner import inner
from support.name_server import wait_until
from support.stores import SMALL, message


class Worker:
    """A service with a list of times at which it has work, and perhaps an error to raise."""

    def __init__(self, *dues):
        self.dues, self.error, self.asked = list(dues), None, 0

    def deliver_due(self, writer, now_ms):
        self.asked += 1
        if self.error:
            raise self.error
        done = [due for due in self.dues if due <= now_ms]
        self.dues = [due for due in self.dues if due > now_ms]
        return len(done)

    def next_due(self, writer, now_ms):
        return min(self.dues, default=NEVER)


# Services run by writers


def test_next_writer_delivers_due_messages(open_store, clock):
    store, other = open_store(), open_store()
    delay(store, 1, b"x")
    clock.now += 999
    other.append(message(b"early", topic="u"))
    assert bodies_of(store) == []
    clock.now += 1
    other.append(message(b"in time", topic="u"))
    assert bodies_of(store) == [b"x"]


def test_deliver_due_delivers_due_messages(open_store, clock):
    store = open_store()
    delay(store, 1, b"1", b"2")
    assert not store.deliver_due()
    clock.now += 1000
    assert store.deliver_due()
    assert bodies_of(store) == [b"1", b"2"]
    assert not store.deliver_due()


def test_services_are_not_run_before_something_is_due(open_store, clock):
    store = open_store()
    store.append(message())
    worker = Worker(clock.now + 500)
    runner, writer = ServiceRunner(inner(store).engine, [worker]), inner(store).writer
    writer.page[NEXT_DUE] = 0
    assert runner.run_due(writer) == 0
    assert (worker.asked, writer.page[NEXT_DUE]) == (1, clock.now + 500)
    for _ in range(5):
        clock.now += 99
        runner.run_due(writer)
    assert worker.asked == 1
    clock.now += 5
    assert runner.run_due(writer) == 1
    assert writer.page[NEXT_DUE] == NEVER


def test_a_thread_sleeps_longer_while_the_clock_is_behind_the_log(open_store, clock):
    store = open_store()
    store.append(message())
    runner, writer = ServiceRunner(inner(store).engine, [Worker()]), inner(store).writer
    writer.page[NEXT_DUE] = clock.now + 1
    assert runner.wait_ms(writer.page) < POLL_MS
    clock.now -= 10
    writer.page[NEXT_DUE] = clock.now
    runner.run_due(writer)
    writer.page[NEXT_DUE] = clock.now + 1
    assert runner.wait_ms(writer.page) == POLL_MS


# Failures


def test_failing_service_does_not_delay_others_and_is_retried(open_store, clock, caplog):
    store = open_store()
    store.append(message())
    bad, good = Worker(clock.now), Worker(clock.now)
    bad.error = StoreDamagedError("its files are corrupt")
    runner, writer = ServiceRunner(inner(store).engine, [bad, good]), inner(store).writer
    writer.page[NEXT_DUE] = 0
    assert runner.run_due(writer) == 1
    for _ in range(5):
        assert runner.run_due(writer) == 0
    assert bad.asked == 1
    clock.now += RETRY_MS
    runner.run_due(writer)
    assert bad.asked == 2
    assert caplog.text.count("its files are corrupt") == 1, "the same error is logged once"
    bad.error = None
    clock.now += RETRY_MS
    assert runner.run_due(writer) == 1


def test_an_append_succeeds_even_if_a_delivery_fails(open_store, clock, monkeypatch, caplog):
    store = open_store()

    def broken(*given, **options):
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("pyrocket.services.delay.schedule_service.due_copies", broken)
    delay(store, 1, b"x")
    clock.now += 1000
    store.append(message(b"y"))
    assert bodies_of(store) == [b"y"]
    assert "unforeseen" in caplog.text


def test_damaged_message_is_skipped(open_store, path, clock, caplog):
    store = open_store()
    driver = Driver(store)
    bodies = [b"%d" % number for number in range(9)]
    delay(store, 1, *bodies)
    places = [
        int(place)
        for piece in inner(store).reader.records("SCHEDULE_TOPIC_XXXX", 0, 0, 9)
        for place in piece.records.physical_offset
    ]
    file = path / "commitlog" / f"{places[4] // 4096 * 4096:020d}"
    with file.open("r+b") as log:
        log.seek(places[4] % 4096 + 4)
        log.write(b"junk")
    clock.now += 1000
    assert driver.all() == 9
    assert bodies_of(store) == bodies[:4] + bodies[5:]
    assert "message 4 of delay level 1 is damaged" in caplog.text


def test_services_never_wait_for_the_write_lock(open_store, path, clock):
    store = open_store()
    driver = Driver(store)
    delay(store, 1, b"x")
    clock.now += 1000
    other = FileLock(Layout(path).mutex)
    assert other.try_lock()
    began = time.monotonic()
    assert driver.once() == 0
    assert time.monotonic() - began < 5
    other.close()
    assert driver.once() == 1, "without a pause, because a held lock is no failure"


def test_two_threads_and_two_stores_deliver_each_message_once(open_store, clock):
    stores = [open_store(), open_store()]
    bodies = [b"%d" % number for number in range(300)]
    delay(stores[0], 1, *bodies)
    clock.now += 1000
    done = threading.Event()

    def deliver(store):
        while not done.is_set():
            store.deliver_due()
            time.sleep(0.001)  # Otherwise the threads starve the reader.

    threads = [threading.Thread(target=deliver, args=(one,)) for one in stores * 2]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: stores[0].max_offset("t", 0) >= 300, seconds=30)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert bodies_of(stores[1]) == bodies


# The service thread


def test_thread_delivers_without_writers(open_store, clock):
    store = open_store()
    with store.run_services() as services:
        delay(store, 1, b"x")
        time.sleep(0.1)
        assert bodies_of(store) == []
        clock.now += 1000
        wait_until(lambda: bodies_of(store) == [b"x"])
        assert services.is_running
    assert not services.is_running


def test_the_thread_delivers_messages_appended_by_another_process(open_store, clock):
    store, other = open_store(), open_store()
    with store.run_services():
        time.sleep(0.05)
        delay(other, 1, b"x")
        clock.now += 1000
        wait_until(lambda: bodies_of(store) == [b"x"])


def test_the_thread_uses_the_clock_of_a_test(path):
    clock = FileClock(path)
    clock.set(1_700_000_000_000)
    with Store.open(path, create=True, config=SMALL) as store, store.run_services():
        delay(store, 18, b"x")
        clock.advance(2 * 3_600_000 - 1)
        time.sleep(0.1)
        assert bodies_of(store) == []
        clock.advance(1)
        wait_until(lambda: bodies_of(store) == [b"x"])


def test_the_thread_ends_with_the_store(open_store):
    store = open_store()
    services = store.run_services()
    store.close()
    assert not services.is_running
    services.stop()


def test_idle_thread_uses_no_cpu(open_store):
    with open_store() as store, store.run_services():
        time.sleep(0.1)
        began = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - began < 0.1


def test_the_thread_of_the_services_survives_an_unexpected_error(open_store, monkeypatch):
    store, calls = open_store(), []
    wait_ms = ServiceRunner.wait_ms

    def fail(self, page):
        calls.append(page)
        if len(calls) < 3:
            raise RuntimeError("a bug")
        return wait_ms(self, page)

    monkeypatch.setattr(ServiceRunner, "wait_ms", fail)
    with store.run_services() as thread:
        wait_until(lambda: len(calls) > 2)
        assert thread.is_running
        assert thread.rounds.failures == 2
