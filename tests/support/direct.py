"""Batch reads and writes as Spark makes them, in this process and without a session."""

import pickle

import pyarrow as pa
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.arrow_types import arrow_schema
from pyspark_pyrocket.options.ddl import parse_ddl


def rows_of(source, schema=None):
    """Return the rows that the tasks of a batch read, as dictionaries. `schema` may be DDL."""
    schema = schema or source.schema()
    reader = source.reader(parse_ddl("schema", schema) if isinstance(schema, str) else schema)
    tasks = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def read(options, schema=None, **more):
    """Return the rows of a batch with these options, as dictionaries."""
    return rows_of(DefaultSource({**options, **more}), schema)


def write(options, schema, *tasks, **more):
    """Write a batch: each task is a list of tuples, in the order of the columns of the DDL."""
    types = parse_ddl("schema", schema)
    arrow = arrow_schema(types)
    asked = {name: str(value) for name, value in {**options, **more}.items()}
    writer = DefaultSource(asked).writer(types, False)
    done = []
    for rows in tasks:
        dicts = [dict(zip(arrow.names, row, strict=True)) for row in rows]
        batches = [pa.RecordBatch.from_pylist(dicts, schema=arrow)] if rows else []
        done.append(pickle.loads(pickle.dumps(writer.write(iter(batches)))))
    writer.commit(done)
