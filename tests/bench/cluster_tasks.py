"""The tasks of a job on a cluster of RocketMQ, without Spark, which are run again and again.

python -m bench.cluster_tasks NAMESRV NUMBER TASKS

Each line of the input is answered with a number of rows: `read TOPIC` reads the partitions of this
task, which are planned first; `write TOPIC ROWS` writes rows of 1 KiB.
"""

import sys

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pyrocket import DefaultSource

BODY = StructType([StructField("body", BinaryType())])
AT_ONCE = 10_000
"""The rows of a batch: Spark's default."""


class Task:
    """One of several tasks."""

    def __init__(self, name_server, number, tasks):
        self._namesrv, self._number, self._tasks = name_server, number, tasks
        self._planned = {}

    def _source(self, topic, **more):
        return DefaultSource({"namesrv": self._namesrv, "topic": topic, **more})

    def read(self, topic):
        if topic not in self._planned:
            reader = self._source(topic).reader(BODY)
            self._planned[topic] = reader, reader.partitions()[self._number :: self._tasks]
        reader, mine = self._planned[topic]
        return sum(batch.num_rows for part in mine for batch in reader.read(part))

    def write(self, topic, rows):
        writer = self._source(topic, delivery="at-least-once").writer(BODY, overwrite=False)
        batch = pa.record_batch({"body": pa.array([b"x" * 1024] * AT_ONCE, pa.binary())})
        rows = int(rows)
        writer.write(batch[: rows - at] for at in range(0, rows, AT_ONCE))
        return rows


def main(name_server, number, tasks):
    task = Task(name_server, int(number), int(tasks))
    for line in sys.stdin:
        name, *arguments = line.split()
        sys.stdout.write(f"{getattr(task, name)(*arguments)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
