"""Concurrent cleanings, and the next process that opens the store."""

import pytest
from pyrocket import Store
from pyrocket.disk.file_queue import FileQueue
from support.stores import SMALL, queue_files


@pytest.mark.parametrize("dry_run", [True, False])
def test_files_deleted_by_a_concurrent_cleaning_are_not_missing(
    aged, open_store, monkeypatch, dry_run
):
    """Files may be deleted between the listing of the folder and the access to them."""
    other, real, starts = open_store(), FileQueue.starts, []

    def list_and_clean(self):
        found = real(self)
        if self.folder.name == "commitlog" and not starts:
            starts.extend(found)
            other.clean(hours=30)
        return found

    monkeypatch.setattr(FileQueue, "starts", list_and_clean)
    assert not aged.clean(hours=30, dry_run=dry_run).removals
    assert starts


def test_a_store_that_was_only_cleaned_is_not_recovered(path, clock, aged, recoveries):
    aged.close()
    recoveries.clear()
    with Store.open(path, clock=clock, config=SMALL) as store:
        assert store.clean(hours=30).queue_files
    Store.open(path, clock=clock, config=SMALL).close()
    assert recoveries == []
    queue_files(path)[1].unlink()
    Store.open(path, clock=clock, config=SMALL).close()
    assert recoveries == [True], "a file missing after the first is detected"
