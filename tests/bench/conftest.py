"""Benchmarks run small in every test run, so that they cannot rot, and large with `-m bench`.

Small runs prove that a benchmark works; their figures mean nothing and nothing is asserted about
them. Figures are printed beside a reference measured in the same run; where there is an aim, a
large run fails if it is missed.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from bench.pairs import Report


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.bench)])
def large(request):
    return request.param == "large"


@pytest.fixture
def report(capsys, large):
    """Prints figures past pytest's capturing; small runs print nothing."""
    return Report(capsys, quiet=not large)


@pytest.fixture
def fast_disk(tmp_path):
    """Memory, where there is some: the code is measured, not the disk."""
    if not os.path.isdir("/dev/shm"):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="pyrocket-bench-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def spark_with_trivial(spark):
    from bench.trivial import Trivial

    spark.dataSource.register(Trivial)
    return spark
