"""The append thread appends requests in groups, and a full queue rejects requests at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyrocket.broker.append_queue import AppendQueue
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.errors import BrokerBusyError, MessageError, StoreFailedError, StoreUnavailableError
from pyrocket.values.message import AppendResult, SendStatus


class Records(ReceivedRecords):
    """A request of a given size."""

    def __init__(self, size=1):
        super().__init__({}, [])
        self.__dict__["size"] = size

    @property
    def bytes(self):
        return self.size


class Slow:
    """An append function that blocks until `go` is set, and records the groups."""

    def __init__(self):
        self.groups, self.go, self.began = [], threading.Event(), threading.Event()

    def __call__(self, requests):
        self.began.set()
        assert self.go.wait(10)
        self.groups.append(list(requests))
        return [f"result {len(self.groups)}"] * len(requests)


@pytest.fixture
def slow():
    append = Slow()
    yield append
    append.go.set()


def busy_with(slow, queue):
    first = queue.put(Records())
    assert slow.began.wait(10)
    return first


def test_requests_that_arrive_during_an_append_are_appended_together(slow):
    queue = AppendQueue(slow)
    first = busy_with(slow, queue)
    others = [queue.put(Records()) for _ in range(20)]
    slow.go.set()
    assert first.result(10) == "result 1"
    assert {each.result(10) for each in others} == {"result 2"}
    assert list(map(len, slow.groups)) == [1, 20]
    queue.close()


def test_the_size_of_a_group_is_limited_but_a_larger_request_is_appended(slow):
    queue = AppendQueue(slow)
    busy_with(slow, queue)
    for size in (100, 9 << 20, 100, 8 << 20):
        queue.put(Records(size))
    slow.go.set()
    queue.close()
    assert [len(group) for group in slow.groups] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("limits", [{"max_requests": 2}, {"max_bytes": 2}])
def test_a_full_append_queue_rejects_records_at_once(slow, limits):
    queue = AppendQueue(slow, **limits)
    busy_with(slow, queue)
    waiting = [queue.put(Records()) for _ in range(2)]
    with pytest.raises(BrokerBusyError, match="are waiting") as caught:
        queue.put(Records())
    assert caught.value.code == "TOO_MANY_REQUESTS"
    slow.go.set()
    assert [each.result(10) for each in waiting] == ["result 2"] * 2
    assert queue.put(Records()).result(10)
    queue.close()


def test_each_request_fails_with_its_own_error():
    outcomes = [[MessageError("bad"), "fine"], StoreFailedError("failed"), KeyError(1), ["fine"]]
    slow = threading.Event()

    def append(requests):
        slow.wait(10)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    queue = AppendQueue(append)
    slow.set()
    # Hold the queue's lock, so that both requests are in one group.
    with queue._changed:
        bad, good = queue.put(Records()), queue.put(Records())
    assert isinstance(bad.exception(10), MessageError)
    assert good.result(10) == "fine"
    assert isinstance(queue.put(Records()).exception(10), StoreFailedError)
    assert isinstance(queue.put(Records()).exception(10), KeyError)
    assert queue.put(Records()).result(10) == "fine"
    queue.close()


def test_a_cancelled_request_is_not_appended(slow):
    queue = AppendQueue(slow)
    busy_with(slow, queue)
    given_up, kept = queue.put(Records()), queue.put(Records())
    assert given_up.cancel()
    slow.go.set()
    assert kept.result(10) == "result 2"
    assert not kept.cancel()
    queue.close()
    assert list(map(len, slow.groups)) == [1, 1]


def test_a_request_that_is_not_cancellable_is_appended(slow):
    queue = AppendQueue(slow)
    busy_with(slow, queue)
    kept = queue.put(Records(), cancellable=False)
    assert not kept.cancel()
    slow.go.set()
    assert kept.result(10) == "result 2"
    queue.close()


def test_closing_appends_pending_records_and_rejects_later_records(slow):
    queue = AppendQueue(slow)
    waiting = [queue.put(Records()) for _ in range(3)]
    slow.go.set()
    queue.close()
    assert all(each.done() for each in waiting)
    with pytest.raises(StoreUnavailableError, match="is stopping"):
        queue.put(Records())


def test_concurrent_synchronous_callers_share_fsyncs():
    """On average at least 8 requests of 16 callers share an fsync. A single caller never waits."""
    groups = []

    def append(requests):
        groups.append(len(requests))
        time.sleep(0.02)
        return ["result"] * len(requests)

    queue = AppendQueue(append, gathers=True)

    def calls(count):
        for _ in range(count):
            assert queue.put(Records()).result(10) == "result"

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(calls, [20] * 16))
    assert sum(groups) == 16 * 20
    assert sum(groups) / len(groups) >= 8
    calls(3)
    assert queue._expected == 1
    queue.close()


def test_what_is_appended_is_answered_even_if_confirming_fails():
    def failing():
        raise StoreFailedError("x", remedy="y")

    results = [AppendResult(0, 0, 0)]
    queue = AppendQueue(lambda _: results, confirm=failing)
    for _ in range(2):
        assert queue.put(Records()).result(10).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert queue.put(Records(), cancellable=False).result(10) is results[0]
    queue.close()
