"""Compares tables of flights: every id must occur once, and the sums of each carrier must agree."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json
from rich.table import Table


@dataclass(frozen=True)
class Totals:
    """The sums of one carrier."""

    flights: int
    distance: int


def totals(flights: pa.Table) -> dict[str, Totals]:
    """Return the sums of each carrier, by its code."""
    sums = flights.group_by("carrier").aggregate([([], "count_all"), ("distance", "sum")])
    return {
        row["carrier"]: Totals(row["count_all"], row["distance_sum"])
        for row in sums.sort_by("carrier").to_pylist()
    }


def flights_of(messages: pa.Table) -> pa.Table:
    """Return a table of flights: id from the key, carrier from the tag, distance from the body."""
    lines = "\n".join(messages["body"].to_pylist()).encode()
    parsed = json.read_json(pa.BufferReader(lines))
    columns = [messages["key"], messages["tags"], parsed["distance"]]
    return pa.table(columns, ["id", "carrier", "distance"])


def differences(expected: pa.Table, found: pa.Table) -> list[str]:
    """Return one line for each difference between `found` and `expected`."""
    wanted, got = totals(expected), totals(found)
    lines = [
        f"{carrier}: {got.get(carrier)} instead of {wanted.get(carrier)}"
        for carrier in sorted({*wanted, *got})
        if wanted.get(carrier) != got.get(carrier)
    ]
    return lines + _id_differences(expected["id"], found["id"])


def count_differences(expected: pa.Table, counts: Mapping[str, int]) -> list[str]:
    """Return one line for each carrier whose flights were not each counted once."""
    wanted = {carrier: sums.flights for carrier, sums in totals(expected).items()}
    return [
        f"windowed count: {carrier}: counted {counts.get(carrier)} instead of {wanted.get(carrier)}"
        for carrier in sorted({*wanted, *counts})
        if wanted.get(carrier) != counts.get(carrier)
    ]


def table_of(source: pa.Table, found: pa.Table, counts: Mapping[str, int]) -> Table:
    """Return a table to print: each carrier's messages, windowed count and distance."""
    table = Table("carrier", "messages", "windowed count", "distance in miles", "as in the source")
    for column in table.columns[1:4]:
        column.justify = "right"
    wanted = totals(source)
    for carrier, sums in totals(found).items():
        count = counts.get(carrier, 0)
        agrees = wanted.get(carrier) == sums and count == sums.flights
        numbers = [f"{number:,}" for number in (sums.flights, count, sums.distance)]
        table.add_row(carrier, *numbers, "yes" if agrees else "NO")
    return table


def _id_differences(expected: pa.ChunkedArray, found: pa.ChunkedArray) -> list[str]:
    problems = {
        "missing": pc.filter(expected, pc.invert(pc.is_in(expected, found))),
        "not in the source": pc.filter(found, pc.invert(pc.is_in(found, expected))),
    }
    lines = [f"{len(ids)} {what}, such as {ids[0]}" for what, ids in problems.items() if len(ids)]
    repeated = len(found) - len(pc.unique(found))
    return [*lines, f"{repeated} more than once"] if repeated else lines
