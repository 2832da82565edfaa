"""Costs that must not grow with the data: opening, planning, and the memory of a read."""

import subprocess
import sys
import time
from functools import partial
from statistics import median

import pyarrow as pa
import pytest
from bench.data import fill
from pyrocket import Store
from pyspark_pyrocket.options.option import BATCH
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.planner import batch_partitions
from pyspark_pyrocket.transport.targets import opened_source, target_at

READ = """
import re, sys
from pathlib import Path
from pyrocket import Store

def own_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

path, most = sys.argv[1], 0
with Store.open(path, read_only=True) as store:
    for batch in store.scan("T", 0, 0, store.max_offset("T", 0), ["body", "msgId", "properties"]):
        most = max(most, own_mib())
print(most)
"""


GROWTH_MIB = 48
"""How much more memory a longer read may use, for caches and by chance."""


def seconds(function, times):
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start)
    return median(spent)


def open_and_close(path):
    Store.open(path).close(clean=False)


def test_the_duration_of_opening_and_planning_does_not_grow(tmp_path, large, report):
    for rows in (10**4, 10**7) if large else (10**2, 10**3):
        path = tmp_path / str(rows)
        with Store.open(path, create=True) as store:
            fill(store, "T", rows, 16, queues=8, rich=False)
        request = Request({"path": str(path), "topic": "T"}, str(tmp_path))
        options = ReadOptions.parse(request, BATCH)
        with opened_source(target_at(path)) as source:
            tasks = batch_partitions(source, options)
            planning = seconds(partial(batch_partitions, source, options), 51)
        assert sum(part.end - part.start for task in tasks for part in task.work.ranges) == rows
        opening = seconds(partial(open_and_close, path), 51)
        report.line(
            f"{rows:,} messages in 8 queues: open {opening * 1000:.2f} ms, plan a batch"
            f" {planning * 1000:.2f} ms, medians of 51"
        )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory of a process")
def test_memory_of_a_read_does_not_grow(tmp_path, large, report):
    most = []
    for mib in (256, 4096) if large else (32, 64):
        path = tmp_path / str(mib)
        with Store.open(path, create=True) as store:
            fill(store, "T", mib * 1024, 1024, queues=1)
        command = [sys.executable, "-c", READ, str(path)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        most.append(float(output))
        report.line(
            f"reading {mib} MiB of 1 KiB bodies: at most {most[-1]:.0f} MiB of private memory,"
            f" interpreter and pyarrow {pa.__version__} included"
        )
    assert most[1] < most[0] + GROWTH_MIB
