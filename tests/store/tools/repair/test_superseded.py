"""Two messages with one queue offset are a finding unless one belongs to a deleted topic."""

import shutil

import pytest
from pyrocket import Store
from pyrocket.engine import writer
from pyrocket.formats import record_batch
from pyrocket.tools.verify.report import Severity
from pyrocket.tools.verify.verify import verify
from support.stores import SMALL, batch, filled, log_files, numbered, overwrite, queue_files

BODY_AT = 88
BROKER = bytes((10, 0, 0, 7)) + (10911).to_bytes(4, "big")


def lose_and_go_on(path, monkeypatch, *, kept, more):
    """Append to a queue after the undetected loss of all its files except the first `kept`."""
    filled(path, count=40).close()
    for file in queue_files(path)[kept:]:
        file.unlink()
    monkeypatch.setattr(writer, "queues_agree", lambda *given: True)
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(more, first=100), 0), topic="t")


@pytest.mark.parametrize(("kept", "more"), [(0, 50), (2, 1)])
def test_offsets_assigned_twice_are_an_error(path, monkeypatch, kept, more):
    lose_and_go_on(path, monkeypatch, kept=kept, more=more)
    report = verify(path)
    assert not report.ok
    (twice,) = (one for one in report.findings if one.code == "QUEUE_OFFSETS_TWICE")
    assert twice.severity is Severity.ERROR
    assert "Store.views" in twice.fix
    assert not any(one.repairable for one in report.findings)


def test_a_topic_recreated_by_a_broker_is_only_a_note(path, monkeypatch):
    monkeypatch.setattr(record_batch, "OUR_HOST", BROKER)
    lose_and_go_on(path, monkeypatch, kept=0, more=3)
    report = verify(path)
    assert [one.code for one in report.findings] == ["QUEUE_SUPERSEDED"]
    assert report.ok


def test_the_queue_entry_of_a_damaged_message_is_not_reported_as_wrong(path, monkeypatch):
    monkeypatch.setattr(record_batch, "OUR_HOST", BROKER)
    lose_and_go_on(path, monkeypatch, kept=0, more=3)
    with Store.open(path, read_only=True) as store:
        at = store.read("t", 0, 0)[0].physical_offset + BODY_AT
    file = log_files(path)[-1]
    overwrite(file, bytes([file.read_bytes()[at - int(file.name)] ^ 1]), at - int(file.name))
    counts = verify(path).counts
    assert "QUEUE_SUPERSEDED" in counts
    assert "QUEUE_ENTRY_WRONG" not in counts


def test_a_topic_recreated_by_pyrocket_is_not_reported(path):
    with filled(path, count=40) as store:
        store.topics.delete("t")
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(3), 0), topic="t")
    assert not verify(path).findings
    shutil.rmtree(path / "consumequeue")
    with Store.open(path, config=SMALL) as store:
        assert store.min_offset("t", 0) == 40
    assert not verify(path).findings
