"""Benchmarks run small in every test run, so that they cannot rot, and large with `-m bench`.

Small runs prove that a benchmark works; their figures mean nothing and nothing is asserted about
speed anywhere: figures are printed beside a reference measured in the same run.
"""

import pytest
from bench.pairs import Report


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.bench)])
def large(request):
    return request.param == "large"


@pytest.fixture
def report(capsys, large):
    """Prints figures whatever pytest captures; the small runs keep quiet."""
    return Report(capsys, quiet=not large)
