"""Stores of brokers with custom delay levels, derived from the due times in queue entries."""

import json
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner
from pyrocket import Store
from pyrocket.errors import OptionError
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.formats.record import read_header
from pyrocket.tools.cli import main
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.delayed import tags_codes
from support.stores import SMALL, FakeClock, log_files, message, overwrite, queue_files

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
OWN, CHANGED = "7s 9s 2m", "3s 9s 2m"
CONFIG = replace(SMALL, log_file_bytes=65536, queue_file_entries=50)


def write_as_broker(path, levels, *, counts=(5, 5)):
    """Append messages of levels 1 and 2, and leave the store as a broker does."""
    clock = FakeClock()
    config = replace(CONFIG, delay_levels=levels)
    with Store.open(path, create=True, config=config, clock=clock) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for level, count in enumerate(counts, start=1):
            for _ in range(count):
                clock.now += 10
                store.append(message(b"x", delay_level=level))
    for file in log_files(path):
        data, at = file.read_bytes(), 0
        while read_header(data, at).is_message:
            overwrite(file, bytes([10, 1, 2, 3]), at + 64)
            at += read_header(data, at).size
    shutil.rmtree(path / "pyrocket")


@pytest.fixture
def root(path):
    write_as_broker(path, OWN)
    return path


def codes(report):
    return {finding.code for finding in report.findings}


def waits(path, queue_id=0):
    """Return the delays (ms) of the entries in a level's queue, given the known store times."""
    first = 1_700_000_000_010 + (50 if queue_id else 0)
    due = tags_codes_of(path, queue_id)
    return [code - first - 10 * n for n, code in enumerate(due)]


def tags_codes_of(path, queue_id):
    class Opened:
        pass

    Opened.path = path
    return tags_codes(Opened, SCHEDULE, queue_id)


def entry_file(path, queue_id=0):
    return queue_files(path, SCHEDULE, queue_id)[0]


def test_levels_that_a_broker_changed_are_reported_but_not_checked(path):
    write_as_broker(path, CHANGED)
    write_as_broker(path, OWN)
    report = verify(path)
    (finding,) = (one for one in report.findings if one.code == "DELAY_LEVELS_UNKNOWN")
    assert finding.severity.value == "note"
    assert "wait 3000 ms, 7000 ms" in finding.what
    assert finding.file.endswith("/0"), "level 2 was not changed"
    assert "were not checked" in finding.what
    assert report.ok


def test_every_entry_is_checked_if_the_levels_are_given(root):
    given = replace(CONFIG, delay_levels=OWN)
    assert verify(root, config=given).ok
    due = tags_codes_of(root, 0)[2]
    overwrite(entry_file(root), (due + 1000).to_bytes(8, "big"), 2 * ENTRY_BYTES + 12)
    assert "QUEUE_TAGS_WRONG" in codes(verify(root, config=given))
    assert "QUEUE_TAGS_WRONG" not in codes(verify(root))
    assert "DELAY_LEVELS_UNKNOWN" in codes(verify(root))
    assert "QUEUE_TAGS_WRONG" in codes(verify(root, config=replace(given, delay_levels="7s")))


@pytest.mark.parametrize("code", [0, 1_700_000_007_031])
def test_a_due_time_that_matches_no_level_is_found_and_repaired(root, code):
    before = waits(root)
    overwrite(entry_file(root), code.to_bytes(8, "big"), 2 * ENTRY_BYTES + 12)
    assert "QUEUE_TAGS_WRONG" in codes(verify(root))
    repair(root)
    assert waits(root) == before


def test_commands_accept_delay_levels(root):
    done = CliRunner().invoke(main, ["verify", str(root), "--delay-levels", "1s 2s", "--json"])
    assert done.exit_code == 1
    assert "QUEUE_TAGS_WRONG" in {one["code"] for one in json.loads(done.stdout)["findings"]}
    done = CliRunner().invoke(main, ["verify", str(root), "--delay-levels", OWN, "--json"])
    assert done.exit_code == 0
    done = CliRunner().invoke(main, ["repair", str(root), "--delay-levels", "soon", "--yes"])
    assert done.exit_code == 2
    assert "DELAY_LEVELS" in done.output


def test_a_rebuilt_queue_keeps_due_times_and_derives_missing_due_times(root):
    before = waits(root)
    assert before == [7000] * 5
    overwrite(entry_file(root), bytes(ENTRY_BYTES), 2 * ENTRY_BYTES)
    repair(root)
    assert waits(root) == before
    assert waits(root, 1) == [9000] * 5


def test_a_rebuilt_queue_keeps_due_times_from_before_and_after_a_change_of_levels(path):
    write_as_broker(path, CHANGED, counts=(5,))
    write_as_broker(path, OWN, counts=(5,))
    before = tags_codes_of(path, 0)
    overwrite(entry_file(path), bytes(ENTRY_BYTES), 9 * ENTRY_BYTES)
    repair(path)
    assert tags_codes_of(path, 0) == before


def test_a_writer_derives_the_levels_from_entries(root, clock):
    with Store.open(root, clock=clock) as store:
        store.append(message(b"x", delay_level=1))
        store.append(message(b"x", delay_level=4))
    known = json.loads((root / "pyrocket/store.json").read_text())["messageDelayLevel"]
    assert known.split()[:4] == ["7s", "9s", "10s", "30s"]
    assert not codes(verify(root)) & {"QUEUE_TAGS_WRONG", "DELAY_LEVELS_UNKNOWN"}


def test_due_times_are_checked_against_the_levels_saved_in_the_store(path):
    config = replace(CONFIG, delay_levels=OWN)
    with Store.open(path, create=True, config=config, clock=FakeClock()) as store:
        store.append(message(b"x", delay_level=1))
        store.append(message(b"x", delay_level=1))
    overwrite(entry_file(path), (12345).to_bytes(8, "big"), 12)
    assert "QUEUE_TAGS_WRONG" in codes(verify(path))
    with pytest.raises(OptionError, match="DELAY_LEVELS"):
        verify(path, config=replace(config, delay_levels="1s"))


def test_the_delay_of_a_single_entry_is_not_taken_as_the_delay_of_its_level(root):
    overwrite(entry_file(root), (1_700_000_009_050).to_bytes(8, "big"), 4 * ENTRY_BYTES + 12)
    with Store.open(root, clock=FakeClock()):
        pass
    known = json.loads((root / "pyrocket/store.json").read_text())["messageDelayLevel"]
    assert known.split()[:2] == ["1s", "9s"]
