"""The live view of a streaming DataFrame shows the newest rows, and why the query ended."""

import pytest
from pyrocket.errors import InvalidInputError, UnsupportedError
from pyspark_pyrocket import StreamView, display_stream


class Batch:
    """The parts of a micro-batch that a view uses."""

    def __init__(self, *rows):
        self.rows, self.asked = [(row,) for row in rows], []

    def __getattr__(self, name):
        def answer(*arguments):
            self.asked.append(name)
            answers = {"count": lambda: len(self.rows), "head": lambda n: self.rows[:n]}
            answers["tail"] = lambda n: self.rows[-n:]
            return answers.get(name, lambda: None)(*arguments)

        return answer


def end_of(view):
    """Return the table that was shown when the query ended."""
    view._follower.join(120)
    return view.table


def test_a_view_shows_the_rows_of_each_micro_batch(spark, box, capsys):
    """The view also shows why the query ended. Spark's console sink shows nothing in a notebook."""
    box.create(queues=1).send("a", "b", "c", queue=0)
    options = {**box.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 2}
    schema = "queueOffset BIGINT, body STRING"
    frame = spark.readStream.format("pyrocket").options(**options).schema(schema).load()
    view = display_stream(frame, trigger={"availableNow": True})
    table = end_of(view)
    assert table.title.startswith("ended (")
    assert table.rows == [(0, "a"), (1, "b"), (2, "c")]
    assert "3 rows in 2 micro-batches" in table.title
    printed = capsys.readouterr().out
    assert "micro-batch 0: 2 rows" in printed
    assert "micro-batch 1: 1 rows" in printed
    assert "<td" in view._repr_html_()


def test_a_view_shows_the_newest_rows_of_all_micro_batches(capsys):
    """The view keeps a fixed number of rows, regardless of their micro-batch."""
    view = StreamView(["x"], 3, whole=False)
    assert view.table.rows == []
    view.take(Batch(1, 2), 0)
    view.take(Batch(3, 4), 1)
    assert view.table.rows == [(2,), (3,), (4,)]
    view.take(Batch(5, 6, 7, 8, 9), 2)
    assert view.table.rows == [(7,), (8,), (9,)]
    assert view.table.title == "micro-batch 2: 5 rows (9 rows in 3 micro-batches)"
    assert capsys.readouterr().out.count("micro-batch") == 6


def test_a_complete_result_replaces_the_previous_one(capsys):
    view = StreamView(["x"], 2, whole=True)
    view.take(Batch(1), 0)
    view.take(Batch(5, 6, 7), 1)
    assert view.table.rows == [(5,), (6,)]


def test_a_micro_batch_is_computed_once_and_completely(capsys):
    """Otherwise an aggregation would lose the state of partitions that were not computed."""
    batch = Batch(1, 2)
    StreamView(["x"], 1, whole=False).take(batch, 0)
    assert batch.asked == ["persist", "count", "tail", "unpersist"]


def test_a_failure_is_shown_in_the_view(capsys):
    class Query:
        def awaitTermination(self):
            raise RuntimeError("[OFFSET_OUT_OF_RANGE] gone\nand a stack trace")

    view = StreamView(["x"], 1, whole=False)
    view.follow(Query())
    assert end_of(view).title.startswith("failed: [OFFSET_OUT_OF_RANGE] gone (")


def test_a_live_view_rejects_a_dataframe_that_is_not_streaming(spark):
    with pytest.raises(InvalidInputError, match=r"df\.show"):
        display_stream(spark.range(1))


def test_a_live_view_rejects_spark_connect_with_the_reason():
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_CONNECT"):
        display_stream(frame)
