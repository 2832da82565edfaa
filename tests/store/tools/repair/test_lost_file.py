"""If the last log file is missing, writers, `verify` and `repair` report it and change nothing."""

import shutil

import pytest
from pyrocket import Store
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.report import Severity
from pyrocket.tools.verify.verify import verify
from support.damage import make
from support.stores import bodies, filled, log_files, message, queue_files, reboot, snapshot


@pytest.fixture(params=["still in use", "a copy"])
def lost(path, clock, request, tmp_path):
    """Delete the last log file; return the store, its former messages, the file and its content."""
    store = make(path, clock)
    held = {topic: bodies(store, topic) for topic in ("t", "u")}
    store.close(clean=request.param != "still in use")
    if request.param == "a copy":
        path = shutil.copytree(path, tmp_path / "copy")
    gone = log_files(path)[-1]
    content = gone.read_bytes()
    gone.unlink()
    return path, held, gone, content


def entries(path):
    return {file: file.read_bytes() for topic in "tu" for file in queue_files(path, topic)}


def test_a_missing_last_file_is_the_only_finding_and_not_repairable(lost):
    path, _, gone, _ = lost
    with pytest.raises(StoreDamagedError, match=f"STORE_FILE_MISSING.*{gone.name}.*backup"):
        Store.open(path)
    report = verify(path)
    (missing,) = [each for each in report.findings if each.code == "LOG_FILE_MISSING"]
    assert missing.file == f"commitlog/{gone.name}"
    assert "from a backup" in missing.fix
    assert set(report.counts) <= {"LOG_FILE_MISSING", "MESSAGES_LOST", "NOT_CLOSED"}
    assert all(gone.name in each.fix for each in report.findings if each.code == "MESSAGES_LOST")
    assert not [finding for finding in report.findings if finding.repairable]


@pytest.fixture
def emptied(path, clock):
    """A store whose last log file lost its length, with an invalid shared state."""
    make(path, clock).close()
    reboot(path)
    last = log_files(path)[-1]
    last.write_bytes(b"")
    return path, last


def test_a_failed_open_keeps_an_empty_last_file(emptied):
    """Only the empty file shows that the store can be repaired by truncation."""
    path, last = emptied
    found = verify(path)
    assert {"LOG_FILE_LENGTH", "LOG_TORN"} <= set(found.counts)
    before = {file: file.read_bytes() for file in path.rglob("0*") if file.is_file()}
    with pytest.raises(StoreDamagedError, match=f"{last.name}.* is empty.*nothing has been"):
        Store.open(path)
    assert {file: file.read_bytes() for file in path.rglob("0*") if file.is_file()} == before
    assert [each.code for each in verify(path).findings] == [each.code for each in found.findings]
    assert repair(path).after.ok


def test_an_empty_last_file_without_entries_is_removed(path, clock):
    """A broker that was killed may leave such a file."""
    with make(path, clock) as store:
        held = {topic: bodies(store, topic) for topic in ("t", "u")}
    reboot(path)
    ahead = log_files(path)[-1].with_name(f"{int(log_files(path)[-1].name) + 4096:020d}")
    ahead.touch()
    with Store.open(path) as store:
        assert {topic: bodies(store, topic) for topic in held} == held
    assert not ahead.exists()


def test_repair_neither_truncates_the_log_nor_removes_entries(lost):
    path, held, gone, content = lost
    before = entries(path)
    done = repair(path)
    assert (done.actions, done.done) == ((), False)
    assert entries(path) == before
    assert not list(path.glob("pyrocket/cut-*"))
    gone.write_bytes(content)
    with Store.open(path) as store:
        assert {topic: bodies(store, topic) for topic in held} == held
    assert verify(path).ok


def test_damage_before_a_missing_file_is_not_a_torn_end(lost):
    path, *_ = lost
    last = log_files(path)[-1]
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[: end - 60] + bytes(len(data) - end + 60))
    before = snapshot(path)
    found = verify(path).counts
    assert "LOG_FILE_MISSING" in found
    assert "LOG_TORN" not in found
    assert not repair(path, dry_run=True).actions
    assert snapshot(path) == before


def test_a_file_deleted_while_the_store_is_open_is_never_created_again(path, clock):
    with make(path, clock) as store:
        gone = log_files(path)[-1]
        content = gone.read_bytes()
        gone.unlink()
        with pytest.raises(StoreDamagedError, match="STORE_FILE_MISSING"):
            store.append(message(b"next", queue_id=0))
        assert not gone.exists()
        gone.write_bytes(content)
        assert store.append(message(b"next", queue_id=0)).queue_offset == 60
    assert verify(path).ok


def test_a_log_that_lost_all_its_files_is_not_treated_as_empty(path, clock):
    make(path, clock).close()
    reboot(path)
    for file in log_files(path):
        file.unlink()
    before = entries(path)
    with pytest.raises(StoreDamagedError, match="STORE_FILE_MISSING"):
        Store.open(path)
    assert "LOG_FILE_MISSING" in verify(path).counts
    assert not repair(path).actions
    assert entries(path) == before


def test_a_log_without_its_first_file_is_reported_as_a_note(path):
    """The file may have been deleted by cleaning; a clean shutdown saves the new log start."""
    filled(path).close()
    log_files(path)[0].unlink()
    (finding,) = verify(path).findings
    assert (finding.code, finding.severity) == ("LOG_BEGINS_LATER", Severity.NOTE)
    assert finding.file == f"commitlog/{log_files(path)[0].name}"
    assert "began at 4096" in finding.what
    with Store.open(path) as store:
        store.append(message())
    assert not verify(path).findings
