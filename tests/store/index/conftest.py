"""Fixtures of tests of the indexes."""

import pytest
from pyrocket.index.keys import index_builder


@pytest.fixture
def eager(monkeypatch):
    """Everything is indexed at once, in slices of one run."""
    monkeypatch.setattr(index_builder, "CATCH_UP_BYTES", 1)
    monkeypatch.setattr(index_builder, "SLICE_BYTES", 1)
