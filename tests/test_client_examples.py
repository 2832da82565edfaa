"""The examples of producers and consumers run over a store's path and over its broker."""

import re
import runpy
import sys
from functools import partial
from pathlib import Path

import pyrocket.broker.broker
import pytest
from pyrocket import Store, StoreConfig
from pyrocket.values.transactions import CheckPolicy
from support.broker import served
from support.shares import share

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = sorted(
    path.stem for path in EXAMPLES.glob("*.py") if "from client_arguments" in path.read_text()
)


@pytest.fixture(params=share(["path", "endpoint"], 1))
def server(request, tmp_path, monkeypatch):
    """The arguments that name a new store, with short delays of retries and checks."""
    monkeypatch.setenv("HOME", str(tmp_path))
    often = partial(CheckPolicy, interval_ms=200)
    monkeypatch.setattr(pyrocket.broker.broker, "CheckPolicy", often)
    store = Store.open(tmp_path / "s", create=True, config=StoreConfig(delay_levels="1s"))
    if request.param == "path":
        store.close()
        yield ["--path", str(tmp_path / "s")]
        return
    with served(store, transaction_check_interval=0.2) as address:
        yield ["--endpoint", address]


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs an example, and returns the lines that it prints."""

    def run(name, server):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *server])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_listed(name):
    assert f"\n| [{name}]({name}.py) | yes |" in (EXAMPLES / "README.md").read_text()


def test_an_example_without_a_store_exits_with_its_usage(run, capsys):
    with pytest.raises(SystemExit):
        run("produce_consume", [])
    assert "one of the arguments --path --endpoint is required" in capsys.readouterr().err


def test_sent_orders_are_billed_and_only_once(run, server):
    sent = [f"sent {order}: SEND_OK" for order in ("3 apples", "1 pear", "2 plums")]
    billed = ["billed ann for 2 plums", "billed ann for 3 apples", "billed eve for 1 pear"]
    for _ in range(2):
        lines = run("produce_consume", server)
        assert (lines[:3], sorted(lines[3:])) == (sent, billed)


def test_ordered_messages_arrive_in_the_order_of_their_key_or_of_the_topic(run, server):
    lines = run("ordered", server)
    steps = ["created", "paid", "shipped"]
    for order in ("o-1", "o-2"):
        found = [line for line in lines if line.startswith(f"steps: {order}")]
        assert found == [f"steps: {order} {step}" for step in steps]
    journal = [f"journal: {order} {step}" for step in steps for order in ("o-1", "o-2")]
    assert [line for line in lines if line.startswith("journal")] == journal
    assert len(lines) == 12


def test_each_member_of_a_broadcasting_group_gets_all_messages(run, server):
    assert sorted(run("broadcast", server)) == [
        "till-1: apple costs 30",
        "till-1: pear costs 45",
        "till-2: apple costs 30",
        "till-2: pear costs 45",
    ]


def test_broadcast_starts_at_the_first_message_of_each_store(run, tmp_path, monkeypatch):
    """The machine also has the offsets of consumers of other stores."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("first", "second"):
        path = str(tmp_path / name)
        with Store.open(path, create=True) as store:
            store.topics.create("prices", read_queues=1, write_queues=1)
        assert len(run("broadcast", ["--path", path])) == 4


def test_delayed_messages_arrive_after_their_delay(run, server):
    found = [re.fullmatch(r"(.*) after ([0-9.]+) s", line) for line in run("delayed", server)]
    assert [each[1] for each in found] == ["at once", "level 1", "at a time"]
    assert float(found[1][2]) >= 1
    assert float(found[2][2]) >= 2.5


def test_consumers_see_messages_of_payments_that_were_made(run, server):
    lines = run("transactional", server)
    assert lines[:3] == ["ann COMMIT", "bob ROLLBACK", "eve UNKNOWN"]
    assert sorted(lines[3:]) == ["ann paid 30", "eve paid 20"]


def test_a_dead_letter_is_consumed_after_it_was_resent(run, server):
    assert run("retry_dead_letter", server) == [
        "attempt 1: pear has no price",
        "attempt 2: pear has no price",
        "attempt 1: pear costs 45",
    ]


def test_payments_are_made_once_for_each_order(run, server):
    run("produce_consume", server)
    lines = run("payments", server)
    assert sorted(lines[:3]) == ["delivered o-1", "delivered o-1", "delivered o-2"]
    assert lines[3:] == ["paid 30 for o-1", "paid 10 for o-2"]


def test_the_backlog_is_zero_after_all_messages_were_consumed(run, server):
    run("produce_consume", server)
    lines = run("backlog", server)
    for queue_id in range(4):
        assert re.fullmatch(rf"views {queue_id}: 2 messages, the oldest .* s old", lines[queue_id])
    assert lines[4] == "reports has 8 messages to consume: too many!"
    assert lines[-5:] == [
        *(f"views {queue_id}: 0 messages" for queue_id in range(4)),
        "reports has 0 messages to consume",
    ]


def test_a_stream_drops_repeated_orders(run, spark, server):
    lines = run("deduplicated_stream", server)
    assert lines == ["o-1: 3 apples", "o-2: 1 pear"]
