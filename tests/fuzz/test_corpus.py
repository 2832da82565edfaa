"""Repeats inputs that once broke a parser, or that no other input resembles."""

import pytest
from fuzz.files import clear
from fuzz.run import CORPUS, TARGETS, harness

pytestmark = pytest.mark.usefixtures("folder", "quick_disk")


@pytest.fixture(scope="module")
def folder():
    yield
    clear()


@pytest.mark.parametrize("name", TARGETS)
def test_known_inputs_raise_only_documented_errors(name):
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        harness(name)(path.read_bytes())
