"""The pages of options and columns match the code."""

import re
from pathlib import Path

from pyspark_pyrocket.columns.messages import COLUMNS, KAFKA_DEFAULT, ROCKETMQ_DEFAULT
from pyspark_pyrocket.options.table import TABLE
from pyspark_pyrocket.sink.columns import _SENT
from support import option_manual

PAGE = (Path(__file__).parents[3] / "connector" / "COLUMNS.md").read_text()


def rows(title):
    """Return the rows of the table in a section, without its header."""
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def test_the_page_of_options_is_generated_from_the_code():
    committed = option_manual.PAGE.read_text()
    assert committed == option_manual.rendered(), (
        "run: python tests/support/option_manual.py --write"
    )


def test_the_page_of_options_has_every_option_once_in_the_order_of_the_code():
    assert [row for part in option_manual.SECTIONS.values() for row in part] == [*TABLE]


def test_the_column_table_has_every_column_and_type():
    first_cells = [row.rsplit("|", 2)[0] for row in rows("Columns of a read")]
    assert first_cells == [
        f"| `{name}` | {' or '.join(each.spark_type.simpleString() for each in variants)} "
        for name, variants in COLUMNS.items()
    ]


def test_the_default_columns_are_the_first_eleven_and_kafkas_are_listed():
    assert [*COLUMNS][:11] == [*ROCKETMQ_DEFAULT]
    assert f"`{', '.join(KAFKA_DEFAULT)}`" in PAGE


def test_the_write_columns_equal_the_code():
    table = [line.split("|") for line in rows("Columns of a write")]
    columns = {name: line[2] for line in table for name in re.findall(r"`(\w+)`", line[1])}
    assert sorted(columns) == sorted(_SENT)
    for name, types in columns.items():
        for kind in _SENT[name][1]:
            assert kind.simpleString() in types, (name, kind)
