"""Consumers that pay are killed at random moments: payments are counted."""

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing

import pytest
from crash.children import pay_until_death
from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.sqlite import SqliteMarks
from pyrocket.client.deduplication.transaction import TransactionMarks
from pyrocket.client.results import ConsumeResult
from support.payments import LEASE_MS, payment

pytestmark = pytest.mark.crash

KILLS = [4, pytest.param(200, marks=pytest.mark.heavy)]


def payments_after(nursery, folder, kills, atomic):
    """Kill pairs of consumers, deliver every order once more; return order → payments."""
    orders, rng = 300 * kills, random.Random(kills)
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE payments (order_id TEXT)")
        transactions = TransactionMarks(lambda: database, group="billing")
        transactions.create_table()
        for seed in range(0, kills, 2):
            given = {"path": folder, "orders": orders, "atomic": int(atomic)}
            pair = [nursery.start(pay_until_death, seed=seed + n, **given) for n in (0, 1)]
            for process in pair:
                time.sleep(rng.uniform(0.05, 0.3))
                nursery.kill(process)
        time.sleep(1.1 * LEASE_MS / 1000)
        with SqliteMarks(folder / "marks.db", group="billing") as marks:
            paid = deliver_all(database, transactions if atomic else marks, orders)
    assert paid.keys() == {f"o-{number}" for number in range(orders)}, "a payment is lost"
    return paid


def deliver_all(database, store, orders):
    def pay(messages):
        database.execute("INSERT INTO payments VALUES (?)", (messages[0].keys[0],))
        return ConsumeResult.SUCCESS

    listener = Deduplicated(pay, store=store)
    for number in range(orders):
        assert listener([payment(f"o-{number}")]) == ConsumeResult.SUCCESS
    return Counter(row[0] for row in database.execute("SELECT order_id FROM payments"))


@pytest.mark.parametrize("kills", KILLS)
def test_payments_in_the_transaction_of_their_marks_are_made_exactly_once(nursery, tmp_path, kills):
    paid = payments_after(nursery, tmp_path, kills, atomic=True)
    assert set(paid.values()) == {1}


@pytest.mark.parametrize("kills", KILLS)
def test_payments_before_their_marks_are_repeated_only_by_kills(nursery, tmp_path, kills):
    paid = payments_after(nursery, tmp_path, kills, atomic=False)
    # A killed process leaves at most one batch of four messages without marks.
    assert sum(paid.values()) - len(paid) <= 4 * kills
