"""`pyrocket topic` and `pyrocket group`: listing, showing, creating and deleting."""

from dataclasses import replace

import pytest
from pyrocket import Message, Store
from support.commands import document_on, run_on
from support.stores import SMALL, batch, filled, numbered


@pytest.fixture
def path(tmp_path):
    """Topic t with 40 messages in queue 0 of 2; group billing has consumed 30 of them."""
    with filled(tmp_path / "store", config=replace(SMALL, log_file_bytes=65_536)) as store:
        store.topics.update("t", read_queues=2, write_queues=2)
        store.append_batch(batch(numbered(5), 1), topic="t")
        store.append(Message(topic="t", body=b"later", delay_level=18))
        store.groups.commit("billing", "t", {0: 30})
        store.groups.create("idle")
    return tmp_path / "store"


def test_a_store_is_only_created_with_create_store(tmp_path):
    refused = document_on(tmp_path / "s", "topic", "create", "new", status=2)["error"]
    assert refused["code"] == "STORE_NOT_FOUND"
    assert "--create-store" in refused["remedy"]
    assert not (tmp_path / "s").exists()
    assert run_on(tmp_path / "s", "topic", "create", "new", "--create-store").exit_code == 0
    with Store.open(tmp_path / "s", read_only=True) as store:
        assert store.topics.get("new").write_queues == 4


def test_lag_is_shown_queue_by_queue(path):
    first, second = document_on(path, "group", "lag", "billing")["lag"]
    assert (first["committedOffset"], first["maxOffset"], first["lag"]) == (30, 40, 10)
    assert (second["committedOffset"], second["lag"], second["lost"]) == (None, 5, 0)
    assert (first["beyondEnd"], second["beyondEnd"]) == (0, 0)
    heads, *_ = run_on(path, "group", "lag", "billing").stdout.splitlines()
    assert heads.split()[-2:] == ["lost", "beyond"]
    assert first["lagBytes"] > 1000
    assert first["behindMs"] > 0
    assert [one["group"] for one in document_on(path, "group", "lag")["lag"]] == ["billing"] * 2
    assert (
        document_on(path, "group", "lag", "bilin", status=2)["error"]["code"] == "GROUP_NOT_FOUND"
    )


def test_a_reset_of_a_mistyped_group_is_refused_and_creates_nothing(path):
    for more in ([], ["--dry-run"]):
        error = document_on(
            path, "group", "reset", "bilin", "t", "--to", "latest", *more, status=2
        )["error"]
        assert error["code"] == "GROUP_NOT_FOUND"
        assert "'billing'" in error["remedy"]
        assert "--create" in error["remedy"]
    assert "bilin" not in {one["group"] for one in document_on(path, "group", "list")["groups"]}
    document_on(path, "group", "reset", "bilin", "t", "--to", "latest", "--create")
    assert "bilin" in {one["group"] for one in document_on(path, "group", "list")["groups"]}


@pytest.mark.parametrize("option", ["--retries", "--retry-queues"])
def test_the_numbers_of_a_group_are_not_negative(path, option):
    assert document_on(path, "group", "alter", "billing", option, -1, status=2)["error"]
    shown = document_on(path, "group", "alter", "billing", option, 1)
    assert 1 in shown.values()


def test_offsets_that_do_not_exist_are_reported(path):
    done = run_on(path, "offset", "show", "billing", "tt")
    assert (done.exit_code, done.stderr) == (1, "billing has no offsets in tt.\n")


def test_a_group_that_is_not_similar_to_any_is_reported_with_all_groups(path):
    error = document_on(path, "group", "show", "xyz", status=2)["error"]
    assert error["remedy"] == "Groups: 'billing', 'idle'."


def test_a_mistyped_target_of_a_reset_is_reported_with_all_words(path):
    error = document_on(path, "group", "reset", "billing", "t", "--to", "latst", status=2)["error"]
    assert error["code"] == "CLI_TIME"
    assert error["remedy"].startswith("Write earliest, latest, -1h")
