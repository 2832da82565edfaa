"""`pyrocket group show` lists the live members of a group, which only its broker knows."""

import json

import pytest
from pyrocket import Store
from support.broker import join_group, served
from support.commands import document_on, run, run_on
from support.stores import SMALL


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "store", create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.groups.create("billing")
    return tmp_path / "store"


@pytest.fixture
def address(path):
    with served(Store.open(path)) as address:
        yield address


def show(address, *options):
    done = run("group", "show", "billing", "--endpoint", address, *options)
    assert done.exit_code == 0, done.output
    return done.stdout


def members(address):
    return {
        one["clientId"]: one["differs"] for one in json.loads(show(address, "--json"))["members"]
    }


def test_members_are_listed_by_their_ids(address):
    for name in ("c2", "c1"):
        join_group(address, "billing", name, t="a || b")
    join_group(address, "audit", "c3", t="*")
    assert [*members(address).items()] == [("c1", False), ("c2", False)]
    lines = [line.split() for line in show(address).splitlines()]
    assert [each for each in lines if each[:1] in (["c1"], ["c2"])] == [
        ["c1", "the", "group's"],
        ["c2", "the", "group's"],
    ]


def test_members_whose_subscriptions_are_not_those_of_the_last_heartbeat_differ(address):
    join_group(address, "billing", "c1", t="a")
    join_group(address, "billing", "c2", t="b")
    join_group(address, "billing", "c3", t="b", u="*")
    assert members(address) == {"c1": True, "c2": True, "c3": False}
    join_group(address, "billing", "c2", t="b")
    assert members(address) == {"c1": True, "c2": False, "c3": True}
    assert ["c1", "differ"] in [line.split() for line in show(address).splitlines()]


def test_a_directory_does_not_know_members(path):
    assert document_on(path, "group", "show", "billing")["members"] is None
    assert "member" not in run_on(path, "group", "show", "billing").stdout
