"""Why the source accepts no filters: Spark then returns wrong rows."""

from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan, InputPartition

CONF = "spark.sql.python.filterPushdown.enabled"


class Numbers(DataSource):
    """A source of ten numbers that applies a pushed `id > n` correctly."""

    @classmethod
    def name(cls):
        return "numbers_that_push"

    def schema(self):
        return "id BIGINT"

    def reader(self, schema):
        class Reader(DataSourceReader):
            above = -1

            def pushFilters(self, filters):
                for each in filters:
                    if isinstance(each, GreaterThan):
                        self.above = each.value
                    else:
                        yield each

            def partitions(self):
                return [InputPartition(None)]

            def read(self, partition) -> Iterator[tuple[int]]:
                return ((number,) for number in range(self.above + 1, 10))

        return Reader()


@pytest.fixture
def frame(spark):
    spark.conf.set(CONF, "true")
    spark.dataSource.register(Numbers)
    yield spark.read.format("numbers_that_push").load()
    spark.conf.unset(CONF)


@pytest.mark.heavy
def test_spark_still_returns_wrong_rows_if_a_source_accepts_filters(frame):
    """Once this fails, Spark has been fixed, and `tags`, `keys` and times can be pushed."""
    assert frame.where("id > 6").count() == 3
    assert frame.count() == 3, "Spark is fixed: it returned all ten rows"
