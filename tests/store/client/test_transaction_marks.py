"""Marks that are committed together with the work of the listener."""

import sqlite3
import threading

import pytest
from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.transaction import TransactionMarks
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import InvalidInputError, PyrocketError
from support.payments import payment
from support.stores import FakeClock

LEASE_MS, KEEP_MS = 1000, 60_000


class Shop:
    """A database, and a listener that inserts payments and returns or raises `answer`."""

    def __init__(self, path):
        self._path, self._here = path, threading.local()
        self.answer, self.clock = ConsumeResult.SUCCESS, FakeClock()
        self.connection().execute("CREATE TABLE payments (order_id TEXT)")
        self.store = TransactionMarks(self.connection, group="billing")
        self.store.create_table()
        self.listener = Deduplicated(
            self, store=self.store, lease_ms=LEASE_MS, keep_ms=KEEP_MS, clock=self.clock
        )
        self.pause = threading.Event()
        self.pause.set()

    def connection(self):
        """Return the connection of the calling thread."""
        if not hasattr(self._here, "connection"):
            self._here.connection = sqlite3.connect(self._path, timeout=30)
        return self._here.connection

    def close(self):
        self.connection().close()

    def __call__(self, messages):
        for message in messages:
            self.connection().execute("INSERT INTO payments VALUES (?)", (message.keys[0],))
        self.pause.wait(30)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(self.connection()) if callable(self.answer) else self.answer

    def consume(self, *keys):
        return self.listener([payment(key) for key in keys])

    def paid(self):
        return [row[0] for row in self.connection().execute("SELECT order_id FROM payments")]


@pytest.fixture
def shop(tmp_path):
    one = Shop(tmp_path / "shop.db")
    yield one
    one.close()


def test_a_payment_is_committed_once(shop):
    assert shop.consume("a", "b", "a") == ConsumeResult.SUCCESS
    assert shop.consume("b", "c") == ConsumeResult.SUCCESS
    assert shop.paid() == ["a", "b", "c"]
    assert not shop.connection().in_transaction


@pytest.mark.parametrize("answer", [ConsumeResult.RECONSUME_LATER, None, ValueError("no money")])
def test_a_payment_that_fails_is_rolled_back_with_its_mark(shop, answer):
    shop.answer = answer
    if isinstance(answer, Exception):
        with pytest.raises(ValueError, match="no money"):
            shop.consume("a")
    else:
        assert shop.consume("a") is answer
    assert shop.paid() == []
    shop.answer = ConsumeResult.SUCCESS
    assert shop.consume("a") == ConsumeResult.SUCCESS
    assert shop.paid() == ["a"]


def test_a_partial_success_rolls_back_the_whole_batch(shop):
    shop.answer = ConsumeResult.success_up_to(0)
    assert shop.consume("a", "b") == ConsumeResult.RECONSUME_LATER
    assert shop.paid() == []


def test_keys_that_differ_only_in_case_or_length_are_different(shop):
    keys = ["a", "A", "a" * 10_000, "a" * 10_001]
    shop.consume(*keys)
    assert shop.paid() == keys


def test_the_table_is_created_once(shop):
    shop.consume("a")
    shop.store.create_table()
    shop.consume("a")
    assert shop.paid() == ["a"]


def test_concurrent_threads_commit_each_payment_once(shop):
    keys = [f"o-{number}" for number in range(40)]

    def work(order):
        for key in order:
            while shop.consume(key) != ConsumeResult.SUCCESS:
                pass
        shop.close()

    threads = [threading.Thread(target=work, args=(keys[::step],)) for step in (1, -1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(shop.paid()) == sorted(keys)


def test_a_second_consumer_waits_for_the_transaction_of_the_first(shop):
    shop.pause.clear()
    results = []

    def consume():
        results.append(shop.consume("a"))
        shop.close()

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    threads[0].join(0.1)
    assert not results
    shop.pause.set()
    for thread in threads:
        thread.join()
    assert results == [ConsumeResult.SUCCESS] * 2
    assert shop.paid() == ["a"]


def test_a_key_that_is_committed_after_it_was_looked_up_is_a_duplicate(shop, monkeypatch):
    look_up, rival = shop.store._look_up, sqlite3.connect(shop._path)

    def look_up_and_lose(connection, marks):
        found = look_up(connection, marks)
        if not rival.in_transaction and not found:
            row = shop.store._mark("payments#a"), shop.clock() + KEEP_MS
            rival.execute("INSERT INTO pyrocket_marks VALUES (?, ?)", row)
            rival.commit()
        return found

    monkeypatch.setattr(shop.store, "_look_up", look_up_and_lose)
    assert shop.consume("a", "b") == ConsumeResult.SUCCESS
    assert shop.paid() == ["b"]
    rival.close()


def test_a_success_after_a_rollback_by_the_listener_is_an_error(shop):
    def roll_back(connection):
        connection.rollback()
        return ConsumeResult.SUCCESS

    shop.answer = roll_back
    with pytest.raises(PyrocketError) as error:
        shop.consume("a")
    assert error.value.code == "DEDUPLICATION_ROLLED_BACK"
    shop.answer = ConsumeResult.SUCCESS
    shop.consume("a")
    assert shop.paid() == ["a"]


def test_an_error_of_the_driver_is_passed_on_and_the_connection_can_be_used_again(shop):
    shop.connection().execute("ALTER TABLE pyrocket_marks RENAME TO hidden")
    shop.connection().commit()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        shop.consume("a")
    shop.connection().execute("ALTER TABLE hidden RENAME TO pyrocket_marks")
    shop.connection().commit()
    shop.consume("a")
    assert shop.paid() == ["a"]


def test_a_nested_call_with_the_same_connection_is_an_error(shop):
    shop.answer = lambda connection: shop.consume("b")
    with pytest.raises(InvalidInputError, match="using the same connection") as error:
        shop.consume("a")
    assert error.value.code == "DEDUPLICATION_CONNECTION"
    assert shop.paid() == []


def test_an_open_transaction_is_an_error_and_is_not_changed(shop):
    shop.connection().execute("INSERT INTO payments VALUES ('mine')")
    with pytest.raises(InvalidInputError, match="open transaction") as error:
        shop.consume("a")
    assert error.value.code == "DEDUPLICATION_CONNECTION"
    shop.connection().commit()
    assert shop.paid() == ["mine"]


def test_a_connection_in_autocommit_mode_is_an_error(shop):
    shop.connection().isolation_level = None
    with pytest.raises(InvalidInputError, match="autocommit"):
        shop.consume("a")
    assert shop.paid() == []


def test_a_driver_in_autocommit_mode_is_an_error():
    class Connection(sqlite3.Connection):
        autocommit = True

    connection = sqlite3.connect(":memory:", factory=Connection)
    with pytest.raises(InvalidInputError, match="autocommit"):
        TransactionMarks(lambda: connection, group="g").begin(["a"], "me", 0, 1)
    connection.close()


@pytest.mark.parametrize(
    ("paramstyle", "expected"),
    [
        *(("qmark", "? ?"), ("format", "%s %s"), ("pyformat", "%s %s")),
        *(("numeric", ":1 :2"), ("named", ":1 :2")),
    ],
)
def test_each_paramstyle_has_its_placeholder(paramstyle, expected):
    class Cursor:
        def execute(self, statement, values):
            assert (statement, values) == (expected, ("a", "b"))

    store = TransactionMarks(lambda: None, group="g", paramstyle=paramstyle)
    store._run(Cursor(), "{} {}", "a", "b")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"connect": sqlite3}, "DEDUPLICATION_CONNECTION"),
        ({"paramstyle": "?"}, "DEDUPLICATION_CONNECTION"),
        ({"paramstyle": None}, "DEDUPLICATION_CONNECTION"),
        ({"group": ""}, "DEDUPLICATION_GROUP"),
    ],
)
def test_an_invalid_argument_is_an_error(arguments, code):
    with pytest.raises(InvalidInputError) as error:
        TransactionMarks(**{"connect": lambda: None, "group": "billing", **arguments})
    assert error.value.code == code


def test_a_function_that_returns_no_connection_is_an_error():
    with pytest.raises(InvalidInputError, match="connect returned None"):
        TransactionMarks(lambda: None, group="billing").create_table()
