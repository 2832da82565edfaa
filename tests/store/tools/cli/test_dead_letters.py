"""`pyrocket dlq`: a dead letter is resent once, and deleted only on request."""

import json

import pytest
from pyrocket import Store
from support.broker import served
from support.commands import run
from support.stores import SMALL, append_as_broker


def letter(store, number, topic="t", group="billing"):
    own = {"RETRY_TOPIC": topic, "UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}"}
    append_as_broker(store, f"%DLQ%{group}", own, 0, body=b"dead %d" % number)


@pytest.fixture(params=["path", pytest.param("endpoint", marks=pytest.mark.heavy)])
def where(request, path):
    """A store with two dead letters of billing, and one of audit with the same id."""
    with Store.open(path, create=True, config=SMALL) as store:
        for topic in ("t", "other", "%DLQ%billing", "%DLQ%audit"):
            store.topics.create(topic, read_queues=1, write_queues=1)
        for group in ("billing", "audit"):
            store.groups.create(group)
        letter(store, 1)
        letter(store, 2)
        letter(store, 1, group="audit")
        if request.param == "endpoint":
            with served(store) as address:
                yield "--endpoint", address
            return
    yield "--path", path


@pytest.fixture
def document(where):
    return lambda *words: json.loads(run(*words, *where, "--json").stdout)


def bodies(document, topic="t"):
    return [one["body"] for one in document("message", "tail", topic)["messages"]]


def resent(document, group="billing"):
    return [one["resent"] for one in document("dlq", "list", group)["messages"]]


def test_a_second_resend_of_all_letters_sends_nothing(document, where):
    first = document("dlq", "resend", "billing", "--all")
    assert (len(first["messages"]), first["skipped"]) == (2, 0)
    assert resent(document) == [True, True]
    second = document("dlq", "resend", "billing", "--all")
    assert (second["messages"], second["skipped"]) == ([], 2)
    assert bodies(document) == ["dead 1", "dead 2"]
    shown = run("dlq", "resend", "billing", "--all", *where)
    assert shown.stderr == "Skipped, because already resent: 2. --again sends them.\n"
    assert run("dlq", "list", "billing", *where).stdout.startswith("resent topic=t id=")


def test_a_resend_without_letters_says_so(document, where):
    run("dlq", "purge", "billing", "--yes", *where)
    done = run("dlq", "resend", "billing", "--all", *where)
    assert (done.exit_code, done.stderr) == (1, "billing has no dead letters.\n")


def test_again_repeats_a_resend(document):
    document("dlq", "resend", "billing", "--all")
    assert len(document("dlq", "resend", "billing", "--all", "--again")["messages"]) == 2
    assert bodies(document) == ["dead 1", "dead 2"] * 2


def test_letters_are_marked_one_by_one_and_for_each_group(document):
    document("dlq", "resend", "billing", "--id", f"{2:032X}")
    assert resent(document) == [False, True]
    assert resent(document, "audit") == [False]
    document("dlq", "resend", "billing", "--all")
    assert bodies(document) == ["dead 2", "dead 1"]
    assert len(document("dlq", "resend", "audit", "--all")["messages"]) == 1


def test_a_letter_that_was_resent_to_another_topic_is_marked_too(document):
    document("dlq", "resend", "billing", "--all", "--to", "other")
    assert resent(document) == [True, True]
    assert document("dlq", "resend", "billing", "--all")["messages"] == []
    assert bodies(document) == []


def test_a_copy_keeps_its_keys_and_can_die_and_be_resent_again(path):
    with Store.open(path, create=True, config=SMALL) as store:
        for topic in ("t", "%DLQ%billing"):
            store.topics.create(topic, read_queues=1, write_queues=1)
        store.groups.create("billing")
        letter(store, 1)
    on = ("--path", path, "--json")
    run("dlq", "resend", "billing", "--all", *on)
    (copy,) = json.loads(run("message", "tail", "t", *on).stdout)["messages"]
    assert copy["keys"][0] == "k1"
    with Store.open(path) as store:
        keys = " ".join(copy["keys"])
        own = {"RETRY_TOPIC": "t", "UNIQ_KEY": copy["msgId"], "KEYS": keys}
        append_as_broker(store, "%DLQ%billing", own, 0, body=b"dead again")
    (sent,) = json.loads(run("dlq", "resend", "billing", "--all", *on).stdout)["messages"]
    assert sent["msgId"] == copy["msgId"]
    newest = json.loads(run("message", "tail", "t", "--count", 1, *on).stdout)["messages"][0]
    assert (newest["body"], len(newest["keys"])) == ("dead again", 2)


def test_purge_deletes_the_letters_of_one_group(document, where):
    assert run("dlq", "purge", "billing", *where, "--yes").stdout == (
        "Deleted: 2 dead letters of billing.\n"
    )
    assert document("dlq", "list", "billing")["messages"] == []
    assert len(document("dlq", "list", "audit")["messages"]) == 1
    assert run("dlq", "purge", "billing", *where, "--yes").exit_code == 1
    assert "GROUP_NOT_FOUND" in run("dlq", "purge", "bilin", *where, "--yes").stderr
