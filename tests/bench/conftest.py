"""Benchmarks run in a small size with the heavy tests, and in a large size with `-m bench`. A small
run only shows that a benchmark works; its figures are meaningless and not checked. Figures are
printed beside a reference from the same run. A large run fails if it misses an aim.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from bench.pairs import Report


@pytest.fixture(
    params=[
        pytest.param("small", marks=pytest.mark.heavy),
        pytest.param("large", marks=pytest.mark.bench),
    ]
)
def large(request):
    return request.param == "large"


@pytest.fixture
def report(capsys, large):
    """Prints figures although pytest captures the output; small runs print nothing."""
    return Report(capsys, quiet=not large)


@pytest.fixture
def fast_disk(tmp_path):
    """A folder that is in memory if possible, so that the code is measured and not the disk."""
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
