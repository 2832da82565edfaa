"""The broker renews the invisible time of messages for its clients."""

from types import SimpleNamespace

import pytest
from pyrocket.broker import polls
from pyrocket.broker.polls import Renewals


class Popped:
    """Records changes of invisible times. The handles in `lost` are invalid."""

    def __init__(self):
        self.extended, self.lost, self.changes = [], set(), 0

    def extend(self, group, topic, handles, ms):
        self.changes += 1
        self.extended += [(handle, ms) for handle in handles]
        return SimpleNamespace(valid=tuple(one not in self.lost for one in handles))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(polls.time, "monotonic", lambda: now.s)
    return now


@pytest.fixture
def pop():
    return Popped()


def test_renewals_get_longer_and_end_after_three_hours(clock, pop):
    kept = Renewals(pop, lambda client: True)
    kept.add("g", "t", "client", [("h", 1)])
    assert kept.attempt("h") == 1
    while len(kept):
        kept.renew()
        clock.s += 5
    assert [ms for _, ms in pop.extended] == [
        *(60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000, 3_600_000, 3_600_000),
        1000,
    ]


def test_a_message_of_a_disconnected_client_becomes_visible(clock, pop):
    kept = Renewals(pop, lambda client: client != "gone")
    kept.add("g", "t", "gone", [("a", 1)])
    kept.add("g", "t", "here", [("b", 1)])
    clock.s += 55
    kept.renew()
    assert sorted(pop.extended) == [("a", 1000), ("b", 60_000)]
    kept.release("here")
    assert pop.extended[-1] == ("b", 1000)
    assert not len(kept)


def test_acked_or_visible_messages_are_not_renewed(clock, pop):
    kept = Renewals(pop, lambda client: True)
    kept.add("g", "t", "client", [("acked", 1), ("visible", 2)])
    kept.remove(["acked", "unknown"])
    pop.lost.add("visible")
    clock.s += 55
    kept.renew()
    kept.renew()
    assert pop.extended == [("visible", 60_000)]
    assert kept.attempt("visible") == 0


def test_renewals_are_combined_into_one_change_per_topic_and_time(clock, pop):
    kept = Renewals(pop, lambda client: client == "here")
    kept.add("g", "t", "here", [(f"here{n}", 1) for n in range(1500)])
    kept.add("g", "t", "gone", [(f"gone{n}", 1) for n in range(500)])
    kept.add("g", "u", "here", [("other", 1)])
    clock.s += 55
    kept.renew()
    assert len(pop.extended) == 2001
    assert pop.changes == 4
    clock.s += 60
    kept.renew()
    assert pop.extended[-1] == ("other", 180_000)
    assert pop.changes == 7
