"""Notebook tables of a store: correct numbers, one line per row, and no injected markup."""

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyrocket import Message, Store
from pyrocket.errors import (
    GroupNotFoundError,
    InvalidInputError,
    StoreNotFoundError,
    TopicNotFoundError,
)
from pyrocket.tools import notebook
from pyrocket.tools.notebook.tables import Table, shown
from support.stores import SMALL, FakeClock, batch, snapshot

START = 1_700_000_000_000


def at(ms):
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


@pytest.fixture
def clock():
    return FakeClock(START)


@pytest.fixture
def store(tmp_path, clock):
    """Topic `orders` with 2 queues, 3 messages, and another one an hour later; topic `empty`."""
    with Store.open(tmp_path / "s", create=True, config=SMALL, clock=clock) as one:
        one.topics.create("orders", read_queues=2, write_queues=2)
        one.topics.create("empty", read_queues=1, write_queues=1)
        one.append_batch(batch([b"a", b"b", b"c"], [0, 0, 1]), topic="orders")
        clock.now += 3_600_000
        last = {"topic": "orders", "body": b"d", "tags": "T", "keys": ["k1", "k2"]}
        one.append(Message(**last, queue_id=0, properties={"city": "Oslo"}))
        yield one


def test_each_table_of_a_store_path_is_displayed_as_html_and_text(store, clock):
    """The path of the store is enough, even while another process writes."""
    store.groups.commit("billing", "orders", {0: 1})
    path = store.path
    for table in (
        notebook.topics(path),
        notebook.queues(path, "orders"),
        notebook.groups(path),
        notebook.lag(str(path)),
        notebook.peek(path, "orders"),
    ):
        html = table._repr_html_()
        assert html.startswith("<table>")
        assert html.count("<tr>") == len(table) + 1
        for row in table.rows:
            assert all(shown(value) in repr(table) for value in row)


def test_topics_have_counts_sizes_times_and_a_trend(store):
    orders = next(row for row in notebook.topics(store) if row["topic"] == "orders")
    assert (orders["queues"], orders["messages"]) == (2, 4)
    assert (orders["first"], orders["last"]) == (at(START), at(START + 3_600_000))
    assert orders["trend"] == "█" + "▁" * 14 + "▄"
    sizes = [b for q in (0, 1) for b in store.scan("orders", q, 0, 3 - 2 * q, ["storeSize"])]
    assert orders["bytes"] == pa.compute.sum(pa.Table.from_batches(sizes)["storeSize"]).as_py()


def test_system_topics_are_shown_only_on_request(store):
    store.append(Message(topic="orders", body=b"later", delay_level=3))
    assert notebook.topics(store).column("topic") == ["empty", "orders"]
    assert "SCHEDULE_TOPIC_XXXX" in notebook.topics(store, system=True).column("topic")


def test_lag_is_measured_in_messages_bytes_and_time(store, clock):
    store.groups.commit("billing", "orders", {0: 2})
    clock.now += 60_000
    first, second = notebook.lag(store, "billing")
    assert (first["committed"], first["maximum"], first["lag"]) == (2, 3, 1)
    assert first["behind"] == timedelta(minutes=1)
    assert first["bytes"] == next(store.scan("orders", 0, 2, 3, ["storeSize"]))[0][0].as_py()
    # The other queue has no committed offset, so its lag is the whole queue.
    assert (second["committed"], second["lag"]) == (None, 1)
    assert second["behind"] == timedelta(minutes=61)
    summed = notebook.groups(store).rows
    assert [(*row[:3], row[4]) for row in summed] == [
        ("billing", "orders", 2, timedelta(minutes=61))
    ]


def test_a_group_without_offsets_is_shown_and_a_missing_group_is_an_error(store):
    store.groups.create("idle")
    assert notebook.groups(store).rows == [("idle", None, None, None, None)]
    with pytest.raises(GroupNotFoundError, match="idle"):
        notebook.lag(store, "idel")


def test_peek_shows_the_newest_last(store):
    assert notebook.peek(store, "orders").column("body") == [b"a", b"b", b"c", b"d"]
    assert notebook.peek(store, "orders", 2).column("body") == [b"c", b"d"]
    assert notebook.peek(store, "orders", 2, queue=1).column("body") == [b"c"]
    assert notebook.peek(store, "empty").rows == []
    row = list(notebook.peek(store, "orders"))[-1]
    assert row["stored"] == at(START + 3_600_000)
    assert (row["queue"], row["offset"], row["tags"], row["keys"]) == (0, 2, "T", "k1 k2")
    assert row["properties"] == {"city": "Oslo"}


@pytest.mark.parametrize("n", [0, -1, 1001])
def test_peek_rejects_too_many_messages(store, n):
    with pytest.raises(InvalidInputError, match=r"Store\.messages"):
        notebook.peek(store, "orders", n)


def test_tables_change_no_files_and_a_missing_store_is_an_error(store, tmp_path):
    store.groups.commit("billing", "orders", {0: 1})
    # Close the store, because an open store flushes and indexes in the background.
    store.close()
    before = snapshot(store.path)
    for look in (notebook.topics, notebook.groups, notebook.lag):
        look(store.path)
        with pytest.raises(StoreNotFoundError):
            look(tmp_path / "none")
    notebook.peek(store.path, "orders")
    assert snapshot(store.path) == before


def test_bodies_cannot_inject_markup_or_escapes_into_the_page(store):
    evil = b"<script>alert(1)</script>\x1b[2J\r\n\xff"
    store.append_batch(batch([evil], 0), topic="orders")
    table = notebook.peek(store, "orders", 1)
    html, text = table._repr_html_(), repr(table)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in text
    assert r"\x1b[2J\r\n\xff" in text
    assert table.rows[0][-1] == evil


def test_titles_cannot_inject_markup_into_the_page():
    table = Table("<b>\x1b", ("n",), [(1,)])
    assert "<b>" not in table._repr_html_()
    assert "\x1b" not in repr(table)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"),
        (None, "-"),
        (timedelta(seconds=59), "59s"),
        (timedelta(0), "0s"),
        (timedelta(hours=2, minutes=5, seconds=9), "2h 5m"),
        (timedelta(days=3), "3d"),
        ("x" * 500, "x" * 119 + "…"),
        (b"x" * 120, "x" * 120),
        ("[red]no markup[/red]", "[red]no markup[/red]"),
        (True, "True"),
    ],
)
def test_long_values_are_shortened(value, text):
    assert shown(value) == text


def test_the_default_store_is_set_by_an_environment_variable(store, monkeypatch):
    monkeypatch.setenv("PYROCKET_STORE", str(store.path))
    assert notebook.topics().rows == notebook.topics(store).rows
    assert notebook.queues(topic="orders").rows == notebook.queues(store, "orders").rows
    assert notebook.peek(topic="orders", n=1).column("body") == [b"d"]
    assert notebook.groups().rows == notebook.lag().rows == []
    monkeypatch.setenv("PYROCKET_STORE", f"file://{store.path}")
    assert notebook.topics().rows == notebook.topics(store).rows


def test_a_missing_store_or_topic_name_is_an_error(store, monkeypatch):
    monkeypatch.delenv("PYROCKET_STORE", raising=False)
    with pytest.raises(StoreNotFoundError, match="PYROCKET_STORE"):
        notebook.topics()
    for look in (notebook.queues, notebook.peek):
        with pytest.raises(TopicNotFoundError, match="no topic is given"):
            look(store)


def test_headings_are_aligned_with_their_columns_text_left_and_numbers_right():
    table = Table("t", ("name", "count"), [("a", 1000)])
    for cell in (">name</th>", ">a</td>"):
        assert f'style="text-align:left"{cell}' in table._repr_html_()
    for cell in (">count</th>", ">1,000</td>"):
        assert f'style="text-align:right"{cell}' in table._repr_html_()
    assert repr(table).splitlines() == ["t", "name  count", "a     1,000"]
