"""Fixtures of tests of the indexes."""

import pytest
from support.keyed import index_at_once


@pytest.fixture
def eager(at_open):
    """Opened stores index keys with each append, in slices of one run."""
    at_open.append(index_at_once)
