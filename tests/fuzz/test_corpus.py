"""Inputs that once broke a parser, or that no other input resembles: read again each time."""

import pytest
from fuzz.files import clear
from fuzz.run import CORPUS, TARGETS, harness
from pyrocket.disk import io

pytestmark = pytest.mark.usefixtures("folder", "quick_disk")


@pytest.fixture(scope="module")
def folder():
    yield
    clear()


@pytest.fixture
def quick_disk(monkeypatch):
    """There are no power losses here, so an fsync is only slow."""
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    monkeypatch.setattr(io, "sync_directory", lambda path: None)


@pytest.mark.parametrize("name", TARGETS)
def test_known_inputs_raise_nothing_but_named_errors(name):
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        harness(name)(path.read_bytes())
