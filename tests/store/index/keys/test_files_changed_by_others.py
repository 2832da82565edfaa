"""Queries find every message after any change to the index files."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyrocket import Store
from pyrocket.disk.shared_state import DISPATCHED, INDEXED
from support.inner import inner
from support.keyed import Refused, fill, index_at_once, index_of, indexed_end, keyless
from support.shares import TIMES
from support.stores import SMALL, FakeClock, reboot, words

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="opens by descriptor")


class Disturbance:
    """A store with a reader, and the brokers that are loading the store."""

    def __init__(self, path):
        self.path, self.clock, self.count, self.brokers = path, FakeClock(), 0, []
        self.store = Store.open(path, create=True, config=SMALL, clock=self.clock)
        index_at_once(self.store)
        self.reader = Store.open(path, read_only=True, clock=self.clock)
        self.append(10)

    def append(self, count):
        fill(self.store, count, self.count)
        self.count += count

    def keyless(self, count):
        keyless(self.store, count)

    def java(self, percent, more):
        """Start a broker, which indexes from the record at this percentage of the queue on."""
        end = self.store.offsets("t")[0].maximum
        start = self.store.read("t", 0, percent * (end - 1) // 100)[0].physical_offset
        self.brokers.append(Refused(self.path, inner(self.store).writer.files.log, start, more))
        self.broker_indexes(50)

    def broker_indexes(self, percent):
        end = self.store.offsets("t")[0].maximum
        place = self.store.read("t", 0, percent * (end - 1) // 100)[0].physical_offset
        for broker in self.brokers[-1:]:
            broker.index_until(
                place if percent < 100 else inner(self.store).writer.page[DISPATCHED]
            )

    def lose(self, number):
        names = index_of(self.path).names()
        if names:
            index_of(self.path).path(names[number % len(names)]).unlink()

    def reopen(self, clean, rebooted):
        self._let_brokers_go()
        self.store.close(clean=clean)
        if rebooted:
            reboot(self.path)
        self.store = Store.open(self.path, clock=self.clock)
        index_at_once(self.store)

    def check(self):
        for one in (self.store, self.reader):
            assert len(one.lookup.query("t", "all", max_messages=10**6)) == self.count
            assert len(one.lookup.query("t", f"k{self.count // 2}")) == 1

    def check_files(self):
        """Check that the index files end at INDEXED."""
        index, page = index_of(self.path), words(self.path)
        assert indexed_end(index) == page[INDEXED] or page[INDEXED] == page[DISPATCHED]
        page.close()

    def _let_brokers_go(self):
        for broker in self.brokers:
            broker.ends()
        self.brokers = []

    def end(self):
        self._let_brokers_go()
        self.reader.close()
        self.store.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("keyless"), st.integers(1, 40)),
        st.tuples(st.just("java"), st.integers(0, 100), st.integers(0, 3)),
        st.tuples(st.just("broker indexes"), st.integers(0, 100)),
        st.tuples(st.just("lose"), st.integers(0, 20)),
        st.tuples(st.just("reopen"), st.booleans(), st.booleans()),
    ),
    max_size=12,
)


@settings(max_examples=6 * TIMES)
@given(steps=STEPS)
def test_no_key_is_missed_after_any_change_to_the_files(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("any") / "store"
    disturbance = Disturbance(path)
    try:
        for what, *given_ in steps:
            getattr(disturbance, what.replace(" ", "_"))(*given_)
            disturbance.check()
        disturbance.append(1)
        disturbance.check()
        disturbance.check_files()
    finally:
        disturbance.end()
