"""Unreadable group offsets are reported, and nothing is deleted."""

import pytest
from pyrocket import Store
from pyrocket.errors import StoreDamagedError


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"offsetTable":5}', '{"offsetTable":{"a@b":{"x":1}}}']
)
def test_a_corrupt_offset_table_is_reported(tmp_path, text):
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        store.topics.create("T")
        path = root / "config/consumerOffset.json"
        path.write_text(text)
        with pytest.raises(StoreDamagedError, match="consumerOffset"):
            store.topics.delete("T")
        assert path.read_text() == text
