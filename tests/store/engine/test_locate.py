"""`Lookup.locate` finds exactly the messages that a scan of the topics would find."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket import LookupRequest, MessageFilter, MessageLocations, Store, StoreSource
from pyrocket.disk.layout import Layout
from pyrocket.errors import OffsetOutOfRangeError, SchemaError, StoreDamagedError
from pyrocket.formats.index_file import Geometry, key_hash
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_search import KeySearch
from pyrocket.index.queues import record_fetch
from support.slices import decoded
from support.stores import SMALL, FakeClock, batch, log_files, message, numbered, overwrite, reboot

ONE_KEY = LookupRequest(topics=["t"], keys=["k"])


@pytest.fixture(params=["indexed", "tail", "no index"])
def some(open_store, path, request):
    """Opens a store with messages in the key index, or after its end, or without an index."""

    def fill(messages):
        config = replace(SMALL, key_index=request.param != "no index")
        store = open_store(config=config)
        sent = [store.append(one) for one in messages]
        if request.param == "indexed":
            store.close()
            store = open_store(read_only=True)
            assert KeyIndex(Layout(path), Geometry(20, 80)).names()
        return store, sent

    return fill


def read(store, wanted, *columns, **options):
    """Return the messages in the order in which a task would read them."""
    located = store.lookup.locate(wanted)
    rows = []
    for places in located.locations:
        for part in decoded(
            StoreSource(store).slices_at(places, **options), columns or ("body",), verify_crc=True
        ):
            rows += zip(*(part.column(name).to_pylist() for name in part.schema.names), strict=True)
    assert len(rows) == len(located) or options
    return rows if columns else [body for (body,) in rows]


def test_one_request_finds_the_messages_of_several_keys(some):
    store, _ = some(
        [message(b"%d" % at, keys=[f"k{at}", "all"], queue_id=at % 2) for at in range(60)]
    )
    assert read(store, LookupRequest(topics=["t"], keys=["k7", "k30", "k31", "none"])) == [
        b"30",
        b"7",
        b"31",
    ]
    assert len(read(store, LookupRequest(topics=["t"], keys=["all", "k3"]))) == 60
    assert read(store, LookupRequest(topics=["t"], keys=["k"])) == []
    assert read(store, LookupRequest(topics=[], keys=["all"])) == []


def test_a_message_with_two_of_the_keys_is_returned_once(some):
    store, _ = some([message(b"x", keys=["a", "b", "a"])])
    assert read(store, LookupRequest(topics=["t"], keys=["a", "b"])) == [b"x"]


def test_keys_are_compared_exactly(some):
    odd = ["Aa", "BB", "aa", "k#1", "t#k", "ключ", "\U0001d518", "a,b", "%s", "x" * 300]
    store, _ = some([message(key.encode(), keys=[key]) for key in odd])
    assert key_hash("t", "Aa") == key_hash("t", "BB")
    for key in odd:
        assert read(store, LookupRequest(topics=["t"], keys=[key])) == [key.encode()]


def test_topics_are_distinguished(some):
    store, _ = some([message(b"%d" % at, topic="tuv"[at % 3], keys=["k"]) for at in range(9)])
    found = read(store, LookupRequest(topics=["t", "u"], keys=["k"]), "topic", "body")
    assert found == [("t", b"0"), ("t", b"3"), ("t", b"6"), ("u", b"1"), ("u", b"4"), ("u", b"7")]


def test_ids_of_both_kinds_are_found(some):
    store, sent = some([message(b"%d" % at, keys=["k"]) for at in range(20)])
    ids = [sent[3].msg_id, sent[5].offset_msg_id, sent[6].offset_msg_id.lower(), "nothing"]
    assert read(store, LookupRequest(topics=["t"], ids=ids)) == [b"3", b"5", b"6"]
    assert read(store, LookupRequest(topics=["other"], ids=ids)) == []
    strange = "C0A8010500002A9F" + sent[3].offset_msg_id[16:]
    assert read(store, LookupRequest(topics=["t"], ids=[strange])) == []


def test_a_requested_id_does_not_match_keys_but_a_requested_key_matches_unique_ids(some):
    store, sent = some([message(b"0"), message(b"1", keys=["key"])])
    assert read(store, LookupRequest(topics=["t"], ids=["key"])) == []
    assert read(store, LookupRequest(topics=["t"], keys=[sent[0].msg_id])) == [b"0"]


def test_the_time_range_is_exact_to_the_millisecond(open_store, clock):
    store, start = open_store(), clock.now
    for at in range(40):
        store.append(message(b"%d" % at, keys=["k"]))
        clock.now += 700
    for _ in range(2):
        wanted = replace(ONE_KEY, begin_ms=start + 7000, end_ms=start + 14_000)
        assert read(store, wanted) == [b"%d" % at for at in range(10, 21)]
        assert read(store, replace(ONE_KEY, begin_ms=start + 7001))[0] == b"11"
        assert read(store, replace(ONE_KEY, end_ms=start + 6999))[-1] == b"9"
        store.close()
        store = open_store()


def test_a_filter_excludes_other_messages(some):
    store, _ = some([message(b"%d" % at, keys=["k"], tags="AB"[at % 2]) for at in range(6)])
    kept = read(store, ONE_KEY, where=MessageFilter.parse(tags="B"))
    assert kept == [b"1", b"3", b"5"]


def test_the_whole_index_file_is_read_for_a_key_of_most_messages(open_store, monkeypatch):
    store = open_store()
    store.append_batch(
        batch(numbered(300), 0, keys=[["k", "x"]] * 300),
        topic="t",
    )
    store.close()
    reader = open_store(read_only=True)
    whole = read(reader, ONE_KEY)
    assert whole == numbered(300)
    monkeypatch.setattr(KeySearch, "max_followed", 5)
    assert read(reader, ONE_KEY) == whole


def test_the_result_reports_how_much_was_read_for_the_lookup(open_store):
    store = open_store()
    store.append_batch(batch(numbered(100), 0, keys=[["k"]] * 100), topic="t")
    tail = store.lookup.locate(ONE_KEY)
    assert (tail.index_files, len(tail)) == (0, 100)
    assert tail.walked_bytes > 100 * 100
    store.close()
    indexed = open_store(read_only=True).lookup.locate(ONE_KEY)
    assert indexed.index_files > 1
    assert indexed.walked_bytes < tail.walked_bytes / 50
    assert (indexed.candidates, len(indexed)) == (100, 100)


def test_messages_of_a_deleted_topic_are_not_found(open_store):
    store = open_store()
    store.append(message(b"old", keys=["k"]))
    store.topics.delete("t")
    store.topics.create("t")
    assert len(store.lookup.query("t", "k")) == 1
    assert read(store, ONE_KEY) == []
    store.append(message(b"new", keys=["k"]))
    assert read(store, ONE_KEY) == [b"new"]


def test_expired_messages_are_not_found_and_later_deletions_are_reported(open_store, path):
    store = open_store()
    for number in range(60):
        store.append(message(numbered(1, 200, number)[0], keys=["k"]))
    store.close()
    files = log_files(path)
    files[0].unlink()
    reader = open_store(read_only=True)
    (places,) = reader.lookup.locate(ONE_KEY).locations
    assert 0 < len(places) < 60
    files[1].unlink()
    with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired"):
        list(StoreSource(reader).slices_at(places))
    (fewer,) = reader.lookup.locate(ONE_KEY).locations
    assert len(fewer) < len(places)


def test_a_damaged_message_is_reported(open_store, path):
    store = open_store()
    sent = [store.append(message(b"x" * 50, keys=["k"])) for _ in range(3)]
    store.close()
    at = sent[1].physical_offset
    reader = open_store(read_only=True)
    (places,) = reader.lookup.locate(ONE_KEY).locations
    overwrite(path / "commitlog" / f"{4096:020d}", b"\x7f\xff", at - 4096 + 84)
    with pytest.raises(StoreDamagedError, match=f"log offset {at}"):
        list(StoreSource(reader).slices_at(places))
    with pytest.raises(StoreDamagedError, match=f"log offset {at}"):
        reader.lookup.locate(ONE_KEY)


def test_locations_of_another_queue_are_rejected(open_store):
    store = open_store()
    store.append_batch(batch(numbered(4), 0, keys=[["k"]] * 4), topic="t")
    (places,) = store.lookup.locate(ONE_KEY).locations
    for wrong in (
        replace(places, topic="u"),
        replace(places, queue_id=1),
        MessageLocations.of(
            "t", 0, places.queue_offsets + 1, places.log_positions, np.zeros(4, np.int64)
        ),
    ):
        with pytest.raises(StoreDamagedError):
            list(StoreSource(store).slices_at(wrong))
    with pytest.raises(SchemaError, match="'boddy'"):
        list(decoded(StoreSource(store).slices_at(places), ["boddy"]))


def test_locations_are_limited_to_a_range_of_offsets():
    at = np.array([2, 5, 9])
    places = MessageLocations.of("t", 0, at, at * 100, np.full(3, 10))
    assert places.within(2, 6).queue_offsets.tolist() == [2, 5]
    assert places.within(3, 5).queue_offsets.tolist() == []
    assert places.within(9, 2).queue_offsets.tolist() == []
    assert (places.within(0, 99), places.stored_bytes) == (places, 30)


def test_records_far_apart_are_read_in_windows(open_store, monkeypatch):
    store = open_store()
    store.append_batch(batch(numbered(60, 300), 0, keys=[["k"]] * 60), topic="t")
    monkeypatch.setattr(record_fetch, "WINDOW_BYTES", 700)
    assert read(store, ONE_KEY) == numbered(60, 300)


def test_appended_messages_are_found_by_another_process(open_store):
    store, reader = open_store(), open_store(read_only=True)
    for at in range(5):
        store.append(message(b"%d" % at, keys=["k"]))
        assert read(reader, ONE_KEY)[-1] == b"%d" % at


def test_a_crashed_store_is_searched_without_a_recovery(open_store, path):
    store = open_store()
    for number in range(30):
        store.append(message(b"%d" % number, keys=["k"]))
    store.close()
    (path / "abort").touch()
    reboot(path)
    assert len(read(open_store(read_only=True), ONE_KEY)) == 30


@given(
    st.lists(st.lists(st.sampled_from(["Aa", "BB", "c", "d"]), max_size=3), max_size=40),
    st.sets(st.sampled_from(["Aa", "BB", "c", "d", "e"]), min_size=1),
    st.integers(0, 40),
)
def test_lookup_and_scan_find_the_same_messages(tmp_path_factory, messages, wanted, closed_after):
    path = tmp_path_factory.mktemp("s") / "store"
    for part in (messages[:closed_after], messages[closed_after:]):
        with Store.open(path, create=True, config=SMALL, clock=FakeClock()) as store:
            store.topics.create("t", read_queues=2, write_queues=2)
            if part:
                rows = {"body": pa.array([",".join(keys) for keys in part]), "keys": part}
                rows["keys"] = pa.array(part, pa.list_(pa.string()))
                store.append_batch(pa.record_batch(rows), topic="t")
    with Store.open(path, read_only=True) as store:
        expected = [
            one.body
            for queue in store.offsets("t")
            for one in store.read("t", queue, 0, 100)
            if wanted & set(one.keys)
        ]
        assert read(store, LookupRequest(topics=["t"], keys=wanted)) == expected
