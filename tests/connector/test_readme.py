"""The README's tables of options and columns match the code."""

import re
from pathlib import Path

from pyspark_pyrocket.columns.messages import COLUMNS, KAFKA_DEFAULT, ROCKETMQ_DEFAULT
from pyspark_pyrocket.options.table import TABLE
from pyspark_pyrocket.sink.columns import _SENT

BAR = r"\|"
"""A `|` as it is written in a cell of a table."""

README = (Path(__file__).parents[2] / "connector" / "README.md").read_text()


def rows(title):
    """Return the rows of the table in a section, without its header."""
    section = README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def test_the_option_table_equals_the_code():
    cells = [
        (f"`{option.name}`", option.default, ", ".join(option.queries), option.meaning)
        for option in TABLE
    ]
    assert rows("Options") == [
        f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in cells
    ]


def test_the_column_table_has_every_column_and_type():
    first_cells = [row.rsplit("|", 2)[0] for row in rows("Columns of a read")]
    assert first_cells == [
        f"| `{name}` | {' or '.join(each.spark_type.simpleString() for each in variants)} "
        for name, variants in COLUMNS.items()
    ]


def test_the_default_columns_are_the_first_eleven_and_kafkas_are_listed():
    assert [*COLUMNS][:11] == [*ROCKETMQ_DEFAULT]
    assert f"`{', '.join(KAFKA_DEFAULT)}`" in README


def test_the_write_columns_equal_the_code():
    table = [line.split("|") for line in rows("Columns of a write")]
    columns = {name: line[2] for line in table for name in re.findall(r"`(\w+)`", line[1])}
    assert sorted(columns) == sorted(_SENT)
    for name, types in columns.items():
        for kind in _SENT[name][1]:
            assert kind.simpleString() in types, (name, kind)
