"""A store that is used, cleaned or changed during a check is not reported as damaged."""

from pathlib import Path

import pytest
from pyrocket.errors import StoreUnavailableError
from pyrocket.tools.verify.files import TolerantFileQueue
from pyrocket.tools.verify.verify import verify
from support.stores import batch, filled, numbered


@pytest.fixture
def closed(path):
    filled(path).close()
    return path


def codes(report):
    return [one.code for one in report.findings if one.severity.value != "note"]


def test_a_log_file_deleted_by_cleaning_during_a_check_is_not_damage(store, monkeypatch, path):
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(80), 0), topic="t")
    real = TolerantFileQueue.starts

    def list_and_clean(self):
        starts = real(self)
        if self.folder.name == "commitlog":
            store.clean(total_bytes=4096)
        return starts

    monkeypatch.setattr(TolerantFileQueue, "starts", list_and_clean)
    assert codes(verify(path)) == []


@pytest.mark.parametrize("deleted_at", [1, 4])
def test_a_topic_deleted_during_a_check_is_not_damage(store, monkeypatch, path, deleted_at):
    for topic in "tu":
        store.topics.create(topic, read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(15), 0), topic=topic)
    real, looks = Path.iterdir, []

    def delete_and_list(self):
        if self.name == "u" or self.parent.name == "u":
            looks.append(self)
            if len(looks) == deleted_at:
                store.topics.delete("u")
        return real(self)

    monkeypatch.setattr(Path, "iterdir", delete_and_list)
    assert codes(verify(path)) == []
    assert len(looks) >= deleted_at


def test_a_store_that_changes_continuously_is_reported(closed, monkeypatch):
    def gone(self):
        raise FileNotFoundError(2, "gone", "x")

    monkeypatch.setattr(TolerantFileQueue, "starts", gone)
    with pytest.raises(
        StoreUnavailableError, match="being created and deleted continuously"
    ) as failure:
        verify(closed)
    assert failure.value.code == "VERIFY_DISTURBED"
