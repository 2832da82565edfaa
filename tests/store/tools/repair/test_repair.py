"""Each kind of damage is reported with its file; repair fixes it or reports that it cannot."""

import re
import shutil
from contextlib import suppress

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED
from pyrocket.errors import PyrocketError, RecordDamagedError, StoreLockedError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.damage import DAMAGES, LAST, make
from support.shares import FEW_STEPS, share
from support.stores import (
    FakeClock,
    batch,
    bodies,
    message,
    numbered,
    queue_files,
    reboot,
    scan,
    snapshot,
    words,
)
from support.table_damage import TABLE_DAMAGES


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store that was closed cleanly, and its contents."""
    path = tmp_path_factory.mktemp("template") / "store"
    with make(path, FakeClock()) as store:
        contents = {topic: bodies(store, topic) for topic in ("t", "u")}
    reboot(path)
    assert not verify(path).findings
    return path, contents


@pytest.fixture
def sound(path, template):
    """The contents of the store at `path`, which was closed cleanly."""
    source, contents = template
    shutil.copytree(source, path)
    return contents


def do(name, path):
    """Do the damage with this name."""
    next(each for each in DAMAGES if each.name == name).do(path)


def contents_of(path):
    with Store.open(path, read_only=True) as store:
        return {topic: bodies(store, topic) for topic in ("t", "u")}


@pytest.mark.parametrize(
    "damage",
    [*share(DAMAGES, len(DAMAGES) // 2), *share(TABLE_DAMAGES, 5)],
    ids=lambda damage: damage.name,
)
def test_verify_finds_damage_and_repair_fixes_what_it_can(path, sound, damage):
    damage.do(path)
    before = snapshot(path)
    planned = repair(path, dry_run=True)
    report = planned.before
    assert damage.code in report.counts, report.findings
    assert all(finding.fix and finding.what and finding.where for finding in report.findings)
    assert all(int(name) % 4096 == 0 for name in named_log_files(report))
    assert snapshot(path) == before, "a dry run, which checks the store, writes nothing"
    done = repair(path)
    assert done.actions == planned.actions
    after = done.after
    if not damage.mended:
        assert damage.code in after.counts
        assert not repair(path, dry_run=True).actions
        assert not [finding for finding in after.findings if finding.repairable]
        return
    if damage.stepped is not None:
        assert [*after.counts] == ["LOG_PLACEHOLDER"]
        check_stepped_over(path, sound, damage.stepped)
        return
    assert not after.findings
    expected = sound if damage.cut is None else {**sound, "t": {0: sound["t"][0][: damage.cut]}}
    if damage.name == "short last log file":
        expected = {topic: kept_of(path, sound, topic) for topic in sound}
    assert contents_of(path) == expected
    assert not repair(path).actions, "a second repair has nothing to do"
    end = len(expected["t"][0])
    with Store.open(path) as store:
        assert store.append(message(b"on", queue_id=0)).queue_offset == end
        assert scan(store, "t", 0)[-1] == (end, b"on")
    assert verify(path).ok


@pytest.mark.parametrize("damage", ["torn", "bytes behind"])
def test_one_repair_fixes_a_log_that_lost_its_end_after_a_clean_shutdown(path, clock, damage):
    """Checkpoint and key index are ahead of the log; the shared state still has the old log end."""
    make(path, clock).close()
    do(damage, path)
    done = repair(path)
    assert not done.after.findings
    assert repair(path).actions == ()
    with Store.open(path) as store:
        placed = store.append(message(b"on", queue_id=0, keys=["new"]))
        assert store.lookup.query("t", "new")[0].queue_offset == placed.queue_offset


def named_log_files(report):
    """Return the names of the log files in findings and in their remedies."""
    texts = (f"{finding.file} {finding.fix}" for finding in report.findings)
    return {name for text in texts for name in re.findall(r"commitlog/(\d+)", text)}


def kept_of(path, sound, topic):
    """Check that most messages of each queue are left, without gaps, and return the contents."""
    found = contents_of(path)[topic]
    for queue_id, kept in found.items():
        assert kept == sound[topic][queue_id][: len(kept)]
        assert len(kept) > len(sound[topic][queue_id]) // 2
    return found


def check_stepped_over(path, sound, lost):
    """Check that one message raises an error, all others are readable, and writers continue."""
    assert not repair(path).actions
    with Store.open(path) as store:
        assert bodies(store, "u") == sound["u"]
        assert store.append(message(b"on", queue_id=0)).queue_offset == LAST + 1
    reboot(path)
    with Store.open(path) as store:
        kept = [*range(lost), *range(lost + 1, LAST + 1)]
        assert [store.read("t", 0, at, 1)[0].body for at in kept] == [
            sound["t"][0][at] for at in kept
        ]
        for read in (lambda: store.read("t", 0, lost, 1), lambda: scan(store, "t", 0, lost)):
            with pytest.raises(RecordDamagedError, match="placeholder"):
                read()
        assert store.history.epoch == 0


def test_repair_leaves_unrepairable_files_unchanged(path, sound):
    do("log file gone", path)
    (path / "commitlog/x.tmp").touch()
    log = [(file.name, file.read_bytes()) for file in sorted((path / "commitlog").glob("0*"))]
    queue = {
        file: file.read_bytes() for file in (path / "consumequeue").rglob("0*0") if file.is_file()
    }
    done = repair(path)
    assert [action.kind for action in done.actions] == ["quarantine"]
    assert [
        (file.name, file.read_bytes()) for file in sorted((path / "commitlog").iterdir())
    ] == log
    assert {file: file.read_bytes() for file in queue} == queue
    assert "LOG_FILE_MISSING" in {finding.code for finding in done.after.findings}
    assert not any(finding.repairable for finding in done.after.findings)


def test_rebuilt_queue_files_have_the_times_of_their_last_messages(path, sound):
    """RocketMQ 4.x searches by time with the modification times of these files."""
    (path / "consumequeue/t/0/00000000000000000200").unlink()
    assert repair(path).after.ok
    with Store.open(path, read_only=True) as store:
        last = [store.read("t", 0, offset, 1)[0] for offset in range(9, LAST + 1, 10)]
        ages = [each.stat().st_mtime_ns // 1_000_000 for each in queue_files(path)]
        assert ages == [each.store_timestamp for each in last]
    assert ages[0] < ages[-1] < path.stat().st_mtime * 1000 - 1_000_000


def test_truncated_messages_are_saved_and_a_new_epoch_starts(path, sound):
    do("last body", path)
    report = verify(path)
    start = report.log_end
    repair(path)
    (kept,) = (path / "pyrocket").glob("cut-*")
    assert kept.name.endswith(f"-{start}")
    assert b"%06d" % LAST in kept.read_bytes()
    with Store.open(path, read_only=True) as store:
        assert store.history.epoch == 1
        assert store.history.cut_since(0, "t", 0) == LAST


def test_a_store_in_use_is_not_repaired(path, clock):
    with make(path, clock):
        with pytest.raises(StoreLockedError, match="STORE_IN_USE"):
            repair(path)
        assert verify(path).ok


def test_rebuilding_a_queue_without_messages_keeps_its_end_offset(path, clock):
    with make(path, clock) as store:
        store.append_batch(batch(numbered(30), 0), topic="t")
        store.clean(hours=0)
        assert store.min_offset("u", 1) == store.max_offset("u", 1) == 9
    reboot(path)
    (path / "consumequeue/u/1/00000000000000000000").write_bytes(b"short")
    repair(path)
    assert verify(path).ok
    with Store.open(path) as store:
        assert store.append(message(b"next", "u", 1)).queue_offset == 9


def test_repair_recovers_a_store_that_was_not_closed_cleanly(path, clock):
    store = make(path, clock)
    expected = {topic: bodies(store, topic) for topic in ("t", "u")}
    store.close(clean=False)
    reboot(path)
    report = verify(path)
    assert (report.ok, [*report.counts]) == (True, ["NOT_CLOSED"])
    done = repair(path)
    assert [action.kind for action in done.actions] == ["settle"]
    assert not (path / "abort").exists()
    assert not verify(path).findings
    assert contents_of(path) == expected


@pytest.mark.parametrize(
    ("damaged", "turned"),
    [(range(512), 0xFF), ([DISPATCHED, PUBLISHED], 0x10000)],
)
def test_corrupt_shared_state_is_reported_and_repaired_without_loss(path, clock, damaged, turned):
    """No check uses the corrupt state; repair recovers the store as the next writer would."""
    with make(path, clock) as store:
        expected = {topic: bodies(store, topic) for topic in ("t", "u")}
    page = words(path)
    for word in damaged:
        page[word] ^= turned
    page.close()
    report = verify(path)
    assert [*report.counts] == ["STATE_DAMAGED"]
    assert report.findings[0].repairable
    done = repair(path)
    assert [action.kind for action in done.actions] == ["settle"]
    assert not done.after.findings
    assert not repair(path).actions
    assert contents_of(path) == expected


@pytest.mark.parametrize("every", FEW_STEPS)
@pytest.mark.parametrize("kinds", [("torn", "foreign in log"), ("tags", "topics broken")])
def test_a_killed_repair_can_be_run_again(tmp_path, template, monkeypatch, kinds, every):
    """Each repair is stopped at a later disk operation than the previous one, and then repeated."""
    for step in range(len(kinds[0]) % 9, 400, 9 * every):
        path = tmp_path / f"store{step}"
        shutil.copytree(template[0], path)
        for kind in kinds:
            do(kind, path)
        with monkeypatch.context() as patch:
            dies = fail_from(step, patch)
            with suppress(OSError, PyrocketError):
                repair(path)
        repair(path)
        assert not verify(path).findings
        assert contents_of(path)["t"][0] == template[1]["t"][0][: LAST if "torn" in kinds else None]
        shutil.rmtree(path)
        if not dies:
            break
    assert step > 10
    assert not dies


def fail_from(step, patch):
    """Make all disk operations after the first `step` fail; return a list of the failures."""
    left, dies = [step], []

    def instead(real):
        def operation(*arguments):
            left[0] -= 1
            if left[0] < 0:
                dies.append(step)
                raise OSError(5, "Input/output error")
            return real(*arguments)

        return operation

    for name in ("write_at", "sync", "sync_directory", "rename", "unlink", "set_length"):
        patch.setattr(io, name, instead(getattr(io, name)))
    return dies
