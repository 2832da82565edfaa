"""Rounds of checks: size, failures, threads, and saved cursors."""

import threading
from itertools import pairwise

import pytest
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.values.transactions import CheckPolicy
from support.halves import (
    COMMIT,
    MINUTE,
    SECOND,
    UNKNOWN,
    Held,
    halves,
    ops,
    rounds,
)
from support.inner import inner
from support.stores import message, overwrite, words


def test_a_round_sends_no_more_check_requests_than_the_producers_accept(store, one, clock):
    one.room = lambda: 3
    for n in range(5):
        one.send(message(b"%d" % n))
    assert rounds(one, clock) == [3]
    assert len(halves(store)) == 8, "messages about which no producer was asked are not renewed"


def test_many_messages_are_checked_in_parts(store, one, listener, clock):
    inner(store).transaction_bridge.policy = CheckPolicy(max_messages=4)
    for n in range(10):
        one.send(message(b"%d" % n))
    clock.now += MINUTE
    assert [one.check_now() for _ in range(4)] == [4, 4, 2, 0]
    assert [seen.body for seen in listener.checked] == [b"%d" % n for n in range(10)]


def test_the_cursors_move_with_the_checks(path, store, one, listener, clock):
    page = words(path)
    for n in range(3):
        one.send(message(b"%d" % n))
    listener.answer = lambda message: COMMIT if message.body == b"1" else UNKNOWN
    rounds(one, clock)
    assert page[HALF_CURSOR] == 3, "the half cursor has passed the originals"
    listener.answer = COMMIT
    rounds(one, clock)
    one.send(message(b"last"))
    rounds(one, clock)
    assert page[HALF_CURSOR] == len(halves(store))
    assert page[OP_CURSOR] >= len(ops(store)) - 1, "the op cursor is at most one message behind"
    page.close()


def test_cursors_are_saved_for_rocketmq_after_each_round(store, one, clock):
    """If this process is killed, a broker must not check both a half message and its copy."""
    one.send(message())
    rounds(one, clock)
    assert store.groups.committed("CID_RMQ_SYS_TRANS", HALF_TOPIC) == {0: 1}


def test_failed_round_saves_no_cursors(store, one, clock, monkeypatch):
    def full(descriptor, data, at):
        raise OSError(28, "No space left on device")

    one.send(message())
    clock.now += MINUTE
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", full)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                one.check_now()
            clock.now += SECOND
    assert store.groups.committed("CID_RMQ_SYS_TRANS", HALF_TOPIC) == {}
    assert one.check_now() == 1, "it is retried a second later"


def test_round_is_retried_after_lock_timeout(store, one, clock):
    one.send(message())
    clock.now += MINUTE
    with inner(store).writer.exclusive():
        busy = threading.Thread(target=lambda: answers.append(one.check_now()))
        answers = []
        busy.start()
        busy.join(20)
    assert answers == [0]
    assert one.check_now() == 1


class Asked:
    """The producers of a group: records each question with its time, and accepts up to `room`."""

    def __init__(self, store, group, room=None):
        self.group, self.clock, self.asked = group, inner(store).engine.clock, []
        self.free = room if room is not None else [1000]
        self.accepts = True

    def room(self):
        return self.free[0]

    def ask(self, request):
        if not (self.accepts and self.free[0] > 0):
            return False
        self.free[0] -= 1
        self.asked.append((request.message.msg_id, self.clock(), request.message))
        return True


def send_undecided(held, group, count=1):
    return [held.transactions.send_half(group, message())[0] for _ in range(count)]


def checks_of(half):
    return int(half.properties.get("TRANSACTION_CHECK_TIMES", 0))


def test_first_checks_stay_prompt_under_a_steady_load(store, clock):
    """10 undecided messages a second for 40 s; the producers read 5 requests every 100 ms."""
    held, sent = Held(store, timeout_ms=6 * SECOND, interval_ms=30 * SECOND), {}
    target = Asked(store, "pg", [5])
    held.transactions.add(target)
    for _ in range(400):
        for request in send_undecided(held, "pg"):
            sent[request.half.transaction_id] = clock.now
        held.transactions.run_checks()
        target.free[0] = 5
        clock.now += 100
    asked = {}
    for name, at, _ in target.asked:
        asked.setdefault(name, []).append(at)
    assert all(asked[name][0] - at < 9 * SECOND for name, at in sent.items() if name in asked)
    assert all(clock.now - at < 9 * SECOND for name, at in sent.items() if name not in asked)
    times = [second - first for many in asked.values() for first, second in pairwise(many)]
    assert times
    assert min(times) >= 30 * SECOND, "a message is checked at most once per interval"


def test_a_message_counts_as_checked_as_often_as_its_producer_was_asked(store, clock):
    held, target = Held(store), Asked(store, "pg")
    held.transactions.add(target)
    send_undecided(held, "pg", 5)
    for _ in range(3):
        clock.now += MINUTE + SECOND
        held.transactions.run_checks()
    assert len(target.asked) == 15
    assert [checks_of(one) for one in halves(store)[-5:]] == [3] * 5


def test_a_full_producer_gets_no_copies_and_does_not_stop_the_checks_of_others(store, clock):
    held = Held(store)
    full, free = Asked(store, "full", [0]), Asked(store, "free")
    held.transactions.add(full)
    held.transactions.add(free)
    send_undecided(held, "full", 3)
    send_undecided(held, "free", 3)
    clock.now += MINUTE
    held.transactions.run_checks()
    assert (len(full.asked), len(free.asked)) == (0, 3)
    assert len(halves(store)) == 9
    full.free[0] = 2
    for asked in (2, 3):
        clock.now += SECOND
        held.transactions.run_checks()
        assert len(full.asked) == asked
        full.free[0] = 2


def test_producers_with_one_connection_share_its_room(store, clock):
    held, room = Held(store), [3]
    both = [Asked(store, group, room) for group in "ab"]
    for one in both:
        held.transactions.add(one)
        send_undecided(held, one.group, 3)
    clock.now += MINUTE
    held.transactions.run_checks()
    assert sum(len(one.asked) for one in both) == 3
    assert len(halves(store)) == 9, "a message about which no producer was asked has no copy"


@pytest.mark.parametrize("before", [0, 84], ids=["body", "header"])
def test_a_damaged_message_does_not_stop_the_checks_of_others(path, store, clock, before):
    held, both = Held(store), [Asked(store, group) for group in ("pg", "qg")]
    for one in both:
        held.transactions.add(one)
    held.transactions.send_half("pg", message(b"spoilt"))
    (log,) = [*Layout(path).commit_log.iterdir()]
    overwrite(log, b"?", log.read_bytes().index(b"spoilt") - before)
    for one in both:
        send_undecided(held, one.group)
    for checks in range(1, 4):
        clock.now += MINUTE
        held.transactions.run_checks()
        assert [checks_of(one.asked[-1][2]) for one in both] == [checks, checks]


def test_a_refused_request_is_sent_later_without_a_second_copy(store, clock):
    held, target = Held(store), Asked(store, "pg")
    held.transactions.add(target)
    send_undecided(held, "pg", 2)
    clock.now += MINUTE
    target.accepts = False
    for _ in range(3):
        held.transactions.run_checks()
        clock.now += SECOND
    assert not target.asked
    target.accepts = True
    held.transactions.run_checks()
    assert [checks_of(message) for _, _, message in target.asked] == [1, 1]
    assert len(halves(store)) == 4
