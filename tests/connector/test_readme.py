"""The README's tables are those of the code."""

from pathlib import Path

from pyspark_pyrocket.columns.messages import COLUMNS
from pyspark_pyrocket.options.table import TABLE

README = (Path(__file__).parents[2] / "connector" / "README.md").read_text()


def test_the_option_table_is_the_codes():
    for option in TABLE:
        queries = ", ".join(option.queries)
        row = f"| `{option.name}` | {option.default} | {queries} | {option.meaning} |"
        assert row in README, row


def test_the_column_table_has_every_column_and_type():
    for name, variants in COLUMNS.items():
        types = " or ".join(variant.spark_type.simpleString() for variant in variants)
        assert f"| `{name}` | {types} |" in README, name
