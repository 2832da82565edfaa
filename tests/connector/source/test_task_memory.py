"""The memory of a task does not depend on the decompressed size of its messages."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyrocket import Store

MIB = 1 << 20
MAX_MIB = 64
"""The maximum memory of a task, in addition to interpreter, pyarrow and planning."""

READ = """
import re, sys
from pathlib import Path
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns

def own_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

columns = default_columns(kafka=False, headers=False, text=False)
reader = DefaultSource({"path": sys.argv[1], "topic": "T"}).reader(columns)
parts = reader.partitions()
before = most = own_mib()
read = 0
for part in parts:
    for batch in reader.read(part):
        read += batch.column("body").nbytes
        most = max(most, own_mib())
print(read, most - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory of a process")
def test_a_task_over_compressed_bodies_uses_a_few_tens_of_mebibytes(tmp_path):
    small, large = b"%064d" % 7 * 1024, b"%064d" % 7 * (64 * 1024)
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        for bodies in ([small] * 1536, [large] * 24):
            store.append_batch(pa.record_batch({"body": bodies}), topic="T")
    command = [sys.executable, "-c", READ, str(tmp_path / "store")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(output[0]) >= 3 * MAX_MIB * MIB
    assert float(output[1]) < MAX_MIB
