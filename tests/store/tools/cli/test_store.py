"""`pyrocket store`: its commands with `--path`, and the information about a store."""

import json
import os

import pytest
from pyrocket import Store
from support.commands import run
from support.stores import SMALL, filled, message, snapshot


@pytest.fixture
def sound(path):
    with filled(path, count=60) as store:
        store.groups.commit("billing", "t", {0: 7})
    return path


def test_info_shows_a_store_and_changes_nothing(sound):
    before = snapshot(sound)
    found = json.loads(run("store", "info", "--path", sound, "--json").stdout)
    assert (found["topics"], found["messages"], found["groups"]) == (1, 60, 1)
    assert (found["path"], found["brokerName"], found["epoch"]) == (str(sound), "broker-a", 0)
    assert found["logFileBytes"] == SMALL.log_file_bytes
    assert found["logEnd"] - found["logStart"] > 60 * 191
    shown = run("store", "info", "--path", sound).stdout
    assert found["uuid"] in shown
    assert "messages           60" in shown
    assert snapshot(sound) == before


def test_sizes_are_shown_in_mib(path):
    with Store.open(path, create=True, config=SMALL.with_sizes(log_file_bytes=3 << 20)) as store:
        store.append(message(os.urandom(3 << 19)))
    shown = run("store", "info", "--path", path).stdout
    assert "1.5 MiB, offsets" in shown
    assert "log files of       3.0 MiB" in shown
    assert "1 message in 1.5 MiB of log" in run("verify", path).stdout


def test_the_environment_variable_accepts_a_file_uri_as_spark_does(sound):
    done = run("store", "info", "--json", PYROCKET_STORE=f"file://{sound}")
    assert json.loads(done.stdout)["path"] == str(sound)
    refused = run("store", "info", "--path", "hdfs://host/store")
    assert refused.exit_code == 2
    assert "'hdfs'" in refused.stderr


@pytest.mark.parametrize("text", ["", "-1", "1.5g", "10 q", "9" * 25, "9" * 5000, "8388608t"])
def test_an_invalid_size_is_rejected_with_an_example(sound, text):
    done = run("store", "clean", "--path", sound, f"--total-bytes={text}")
    assert done.exit_code == 2
    assert "10g" in done.stderr


def test_the_retention_is_set_and_shown(sound):
    def kept():
        return json.loads(run("store", "info", "--path", sound, "--json").stdout)["retention"]

    assert kept() is None
    assert "messages kept      all\n" in run("store", "info", "--path", sound).stdout
    given = ("--retention-hours", "72", "--retention-bytes", "10g", "--clean-time", "4,16")
    done = run("store", "retention", "--path", sound, *given)
    assert done.stdout == (
        "messages kept: 72 hours, deleted at 04:00, 16:00 or as the disk fills up; "
        "at most 10.0 GiB of log\n"
    )
    assert kept() == {"hours": 72, "bytes": 10 << 30, "cleanTime": [4, 16]}
    run("store", "retention", "--path", sound, "--retention-hours", "none")
    assert kept() == {"hours": None, "bytes": 10 << 30, "cleanTime": [4, 16]}
    done = run("store", "retention", "--path", sound, "--retention-bytes", "none", "--json")
    assert json.loads(done.stdout) == {"path": str(sound), "retention": None}
    assert kept() is None


@pytest.mark.parametrize(
    "given",
    [
        ["--clean-time", "4"],
        ["--retention-hours", "72", "--clean-time", "24"],
        ["--retention-hours", "-1"],
        ["--retention-hours", "nan"],
        ["--retention-bytes", "much"],
    ],
)
def test_a_retention_without_a_limit_is_rejected(sound, given):
    before = snapshot(sound)
    assert run("store", "retention", "--path", sound, *given).exit_code == 2
    assert snapshot(sound) == before
