"""The cost of de-duplication for each message, with many marks, beside plain inserts into SQLite.

Aim: at most 1 ms for each message with a million marks.
"""

import sqlite3
import time
from contextlib import closing

from pyrocket.client.deduplication.cache import CachedMarks
from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.sqlite import SqliteMarks
from pyrocket.client.deduplication.transaction import TransactionMarks
from pyrocket.client.results import ConsumeResult
from support.payments import payment

KEEP_MS = 7 * 24 * 3_600_000
AIM_MICROSECONDS = 1000


def cost(function, items):
    """Return the microseconds for each item."""
    start = time.perf_counter()
    for item in items:
        function(item)
    return (time.perf_counter() - start) / len(items) * 1e6


def wal(path):
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def succeed(messages):
    return ConsumeResult.SUCCESS


def fill(store, count):
    for first in range(0, count, 10_000):
        keys = [f"payments#old-{number}" for number in range(first, min(first + 10_000, count))]
        now = time.time_ns() // 1_000_000
        store.begin(keys, "bench", now, 60_000)
        store.done(keys, "bench", now, KEEP_MS)


def test_the_cost_of_a_message(tmp_path, large, report):
    marks, messages = (10**6, 20_000) if large else (100, 10)
    new = [[payment(f"new-{number}")] for number in range(messages)]
    old = [[payment(f"old-{number * 7919 % marks}")] for number in range(messages)]
    with (
        closing(wal(tmp_path / "plain.db")) as plain,
        closing(wal(tmp_path / "shop.db")) as shop,
        SqliteMarks(tmp_path / "marks.db", group="billing") as store,
    ):
        plain.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID")
        rows = [(f"payments#old-{number}", number) for number in range(marks)]
        plain.executemany("INSERT INTO t VALUES (?, ?)", rows)
        plain.commit()

        def insert(batch):
            plain.execute("INSERT INTO t VALUES (?, 0)", (f"payments#{batch[0].keys[0]}",))
            plain.commit()

        transactions = TransactionMarks(lambda: shop, group="billing")
        transactions.create_table()
        for each in (store, transactions):
            fill(each, marks)
        reference = cost(insert, new)
        measured = {
            "SqliteMarks": Deduplicated(succeed, store=store),
            "CachedMarks": Deduplicated(succeed, store=CachedMarks(store)),
            "TransactionMarks": Deduplicated(succeed, store=transactions),
        }
        for name, listener in measured.items():
            fresh = [[payment(f"{name}-{batch[0].keys[0]}")] for batch in new]
            first, again, repeated = (cost(listener, each) for each in (fresh, old, fresh[-100:]))
            report.line(
                f"{name}, {marks:,} marks: new {first:.0f} µs, a duplicate {again:.0f} µs,"
                f" a recent duplicate {repeated:.0f} µs; a plain insert {reference:.0f} µs"
            )
            assert not large or first <= AIM_MICROSECONDS
