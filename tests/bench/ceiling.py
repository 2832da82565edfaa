"""Writes the batches of a read to files. The throughput of a source that only reads these files is
an upper bound.
"""

import pyarrow as pa
from pyspark_pyrocket.columns.projection import Projection


def to_nowhere(frame):
    frame.write.format("noop").mode("overwrite").save()


def prebuild(store, schema, path):
    """Write the batches of each task of a read, exactly as Spark receives them."""
    projection = Projection.of(schema)
    for queue, offsets in store.offsets("T").items():
        batches = store.scan("T", queue, 0, offsets.maximum, projection.scan)
        with (
            pa.OSFile(f"{path}.{queue}", "wb") as file,
            pa.ipc.new_file(file, projection.schema) as writer,
        ):
            for batch in projection.apply_all(batches):
                writer.write_batch(batch)
