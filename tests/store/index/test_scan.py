"""Reading one message by its entry: entry and record must agree."""

import pytest
from pyrocket.errors import StoreDamagedError
from support.stores import filled, log_files, overwrite


@pytest.mark.parametrize("at", [28, 35])
def test_a_record_with_another_offset_is_damage(path, at):
    with filled(path, 3) as store:
        second = store.read("t", 0, 1, 1)[0]
        overwrite(log_files(path)[0], b"\x55", second.physical_offset % 4096 + at)
        assert len(store.read("t", 0, 0, 1)) == 1
        with pytest.raises(StoreDamagedError, match=r"offset 1 of queue 0.*different offset"):
            store.read("t", 0, 1, 1)
