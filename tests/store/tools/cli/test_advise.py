"""`pyrocket group advise`, on a directory and over a broker."""

import json
import os

import pytest
from pyrocket import Store
from support.broker import served
from support.commands import run
from support.stores import SMALL


@pytest.fixture(scope="module", params=["--path", "--endpoint"])
def where(request, tmp_path_factory):
    """The options that name a store in which billing consumes topic t with 3 queues."""
    path = tmp_path_factory.mktemp("advise") / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=3, write_queues=3)
        store.topics.create("%RETRY%billing", read_queues=1, write_queues=1)
        store.groups.commit("billing", "t", {0: 0})
        store.groups.commit("billing", "%RETRY%billing", {0: 0})
        store.groups.create("idle")
        if request.param == "--endpoint":
            with served(store) as address:
                yield request.param, address
            return
    yield request.param, path


def advise(where, *options, group="billing", status=0):
    done = run("group", "advise", group, *options, *where, "--json")
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_threads_processes_and_nodes_follow_from_the_times_of_the_listener(where):
    times = ("--cpu-ms", 2, "--wait-ms", 6)
    assert advise(where, "--peak", 5000, *times, "--cores", 4) == {
        "group": "billing",
        "peak": 5000,
        "cores": 4,
        "nodeRate": 2000,
        "nodes": 3,
        "processes": 4,
        "threadMax": 4,
        "threads": 16,
        "processRate": 500,
        "queues": 3,
        "idleConsumers": 9,
    }
    assert advise(where, "--peak", 5000, *times)["cores"] == os.cpu_count()


def test_a_measured_rate_needs_no_times(where):
    found = advise(where, "--peak", 5000, "--rate", 900)
    assert (found["nodes"], found["threads"], found["processRate"]) == (6, None, None)


def test_the_text_explains_the_bound_of_a_process_and_consumers_without_queues(where):
    options = ("--peak", 2500, "--cpu-ms", 2, "--wait-ms", 6, "--cores", 8)
    text = run("group", "advise", "billing", *options, *where).stdout
    assert "threads          32\n" in text
    assert "nodes            1\n" in text
    assert "at most 500 messages per second" in text
    assert "run 5 processes, each with a PushConsumer of thread_max=4" in text
    assert "at most 3 batches at once" in text
    assert "2 of 5 consumers have no queue" in text
    assert "--queues 5" in text
    few = run("group", "advise", "billing", "--peak", 3, "--rate", 1, *where).stdout
    assert "threads          -\n" in few
    assert "GIL" not in few
    assert "no queue" not in few


def test_the_queues_of_a_group_without_offsets_are_not_known(where):
    assert advise(where, "--peak", 1, "--rate", 1, group="idle")["queues"] == 0
    text = run("group", "advise", "idle", "--peak", 1, "--rate", 1, *where).stdout
    assert "not known" in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("", "USAGE"),
        ("--peak 5", "USAGE"),
        ("--peak 5 --cpu-ms 1", "USAGE"),
        ("--peak 5 --wait-ms 1 --rate 1", "USAGE"),
        ("--peak 0 --rate 1", "USAGE"),
        ("--peak 5 --cpu-ms 0 --wait-ms 1", "USAGE"),
        ("--peak 5 --cpu-ms 1 --wait-ms -1", "USAGE"),
        ("--peak 5 --rate 1 --cores 0", "USAGE"),
        ("--peak many --rate 1", "USAGE"),
        ("--peak nan --rate 1", "ADVICE_INPUT"),
        ("--peak inf --rate 1", "ADVICE_INPUT"),
    ],
)
def test_misuse_is_an_error(where, options, code):
    assert advise(where, *options.split(), status=2)["error"]["code"] == code


def test_the_error_for_a_missing_group_suggests_the_most_similar_name(where):
    error = advise(where, "--peak", 1, "--rate", 1, group="bilin", status=2)["error"]
    assert error["code"] == "GROUP_NOT_FOUND"
    assert "'billing'" in error["remedy"]
