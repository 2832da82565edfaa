"""Commands that delete ask first, and count; without an answer, nothing is deleted."""

import json
import re
from itertools import product

import click
import pytest
from pyrocket import Message, Store
from pyrocket.base.arguments import counted
from pyrocket.tools.cli import main
from support.broker import served
from support.commands import run
from support.shares import share
from support.stores import (
    SMALL,
    append_as_broker,
    batch,
    log_files,
    numbered,
    reboot,
    set_disk_usage,
)

COMMANDS = {
    "topic delete t": "Delete t with 100 messages?",
    "group delete billing": "Delete billing with offsets in 1 topic?",
    "dlq purge billing": "Delete 2 dead letters of billing?",
    "store clean --total-bytes 8k": "Delete 68 messages in 4 log files (",
    "store retention --retention-bytes 8k": "Delete 68 messages in 4 log files (",
}
"""Command → its question."""


def fill(store):
    """100 messages in 5 or 6 log files, a committed offset, and two dead letters."""
    store.topics.create("t", read_queues=1, write_queues=1)
    store.topics.create("%DLQ%billing", read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(100), 0), topic="t")
    store.groups.commit("billing", "t", {0: 7})
    for number in range(2):
        own = {"RETRY_TOPIC": "t", "UNIQ_KEY": f"{number:032X}"}
        append_as_broker(store, "%DLQ%billing", own, 0, body=b"dead")


@pytest.fixture(params=["path", "endpoint"])
def where(request, path):
    with Store.open(path, create=True, config=SMALL) as store:
        fill(store)
        if request.param == "endpoint":
            with served(store) as address:
                yield "--endpoint", address
            return
    yield "--path", path


def content(where):
    """Return everything that the commands delete or change."""
    shown = ("topic list --all", "offset show billing", "dlq list billing", "store info")
    return [json.loads(run(*one.split(), *where, "--json").stdout) for one in shown]


def test_nothing_is_deleted_without_a_yes(where):
    before = content(where)
    for command, question in COMMANDS.items():
        words = command.split()
        refused = run(*words, *where, answer="n\n")
        assert (refused.exit_code, question in refused.stderr) == (1, True), refused.output
        unanswered = run(*words, *where, answer="")
        assert unanswered.exit_code == 2
        assert "Error [NO_ANSWER]" in unanswered.stderr
        assert "--yes" in unanswered.stderr
        assert run(*words, *where, "--json").exit_code == 1
        planned = run(*words, *where, "--dry-run")
        assert (planned.exit_code, planned.stderr) == (0, "")
        assert "would" in planned.stdout.lower()
    assert content(where) == before


ANSWERED = zip(COMMANDS, ["y", "--yes", "--json --yes", "y", "--yes"], strict=True)


@pytest.mark.parametrize(
    ("where", "command", "answer"),
    share([(place, *one) for place, one in product(["path", "endpoint"], ANSWERED)], 5),
    indirect=["where"],
)
def test_a_yes_deletes(where, command, answer):
    before = content(where)
    flags = answer.split() if answer.startswith("--") else []
    done = run(*command.split(), *where, *flags, answer="y\n" if answer == "y" else "")
    assert done.exit_code == 0, done.output
    assert (COMMANDS[command] in done.stderr) == (answer == "y")
    assert content(where) != before


def test_a_first_retention_asks_before_the_oldest_files_of_a_full_disk_are_deleted(
    where, monkeypatch
):
    set_disk_usage(monkeypatch, 900)
    words = ("store", "retention", "--retention-hours", "1000", *where)
    refused = run(*words, answer="n\n")
    question = r"Delete the oldest log files \([\d.]+ KiB\), because the disk is full\?"
    assert re.search(question, refused.stderr), refused.output
    assert refused.exit_code == 1
    assert "messages kept: all" in run("store", "retention", *where).stdout
    planned = run(*words, "--retention-bytes", "8k", "--dry-run").stdout
    assert "68 messages in 4 log files" in planned
    assert "limits, and the oldest log files (" in planned
    set_disk_usage(monkeypatch, 800)
    assert run(*words, answer="").exit_code == 0


def walk(command, words=()):
    """Yield each command of the line as (words, command)."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*words, name))
    else:
        yield " ".join(words), command


def test_every_command_that_deletes_or_repairs_has_a_question_and_a_preview():
    for name, command in walk(main):
        options = {each.name for each in command.params}
        deletes = any(word in name for word in ("delete", "purge", "clean", "retention", "repair"))
        if deletes or name == "checkpoint reset":
            assert {"yes", "dry_run"} <= options, name


def test_the_question_counts_the_messages_that_the_cleaning_deletes(path):
    with Store.open(path, create=True, config=SMALL) as store:
        fill(store)
    asked = run("store", "clean", "--path", path, "--total-bytes", "8k", answer="n\n").stderr
    planned = json.loads(
        run("store", "clean", "--path", path, "--total-bytes", "8k", "--dry-run", "--json").stdout
    )
    done = json.loads(
        run("store", "clean", "--path", path, "--total-bytes", "8k", "--yes", "--json").stdout
    )
    with Store.open(path, read_only=True) as store:
        left = store.offsets("t")[0]
    assert planned["messages"] == done["messages"] == left.minimum
    assert f"Delete {left.minimum} messages in {len(done['logFiles'])} log files" in asked


def test_a_damaged_queue_does_not_prevent_a_cleaning(path):
    with Store.open(path, create=True, config=SMALL) as store:
        fill(store)
    reboot(path)
    files = sorted((path / "consumequeue" / "t" / "0").iterdir())
    files[3].unlink()
    with Store.open(path, create=True, config=SMALL) as store:
        store.append(Message(topic="t", body=b"x"))
    count = len(log_files(path))
    assert run("store", "clean", "--path", path, "--total-bytes", "8k", "--yes").exit_code == 0
    assert len(log_files(path)) < count


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 topics"), (1, "1 topic"), (2, "2 topics"), (1000, "1,000 topics")]
)
def test_one_thing_is_counted_in_the_singular(number, text):
    assert counted(number, "topic") == text
