"""A live view of a streaming DataFrame, in a notebook or at a prompt.

    view = display_stream(spark.readStream.format("pyrocket").options(…).load())
    …
    view.stop()

Spark's console sink prints to the standard output of the driver's JVM, which a notebook does not
show. This view shows the newest rows in the cell's output, and updates them in place.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from pyrocket.errors import InvalidInputError, UnsupportedError
from pyrocket.tools.notebook.tables import Table
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_pyrocket.tools.foreach_batch import foreach_batch


def display_stream(
    frame: DataFrame,
    n: int = 20,
    *,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
) -> "StreamView":
    """Start a query that shows `n` rows of the frame, the newest last; return its view.

    With the output mode `complete`, these are the first rows of the result. `trigger` contains the
    arguments of Spark's `trigger(…)`, such as `{"availableNow": True}`. Progress is not saved: the
    next view starts at `startingOffsets`. Raises InvalidInputError, UnsupportedError (Spark
    Connect).
    """
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError(
            "with Spark Connect, the server processes micro-batches, and it has no display.",
            remedy="Write to a table or a topic, and show it with `df.show()`.",
            code="UNSUPPORTED_CONNECT",
        )
    if not frame.isStreaming:
        raise InvalidInputError("this DataFrame is not a stream.", remedy="Use df.show().")
    view = StreamView(frame.columns, n, whole=output_mode == "complete")
    writer = frame.writeStream.outputMode(output_mode).foreachBatch(foreach_batch(view.take))
    view.follow((writer.trigger(**trigger) if trigger else writer).start())
    return view


class StreamView:
    """The newest rows of a query: `table` returns them, `stop` stops the query."""

    def __init__(self, columns: list[str], n: int, *, whole: bool) -> None:
        self._columns, self._n, self._whole = tuple(columns), n, whole
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=n)
        self._counts: list[int] = []
        self._state = "waiting for rows"
        self._screen = _screen(self)

    def take(self, batch: DataFrame, number: int) -> None:
        """Show a micro-batch; Spark calls this for each one."""
        # Compute the whole batch once: Spark saves the state of an aggregation only for computed
        # partitions, and taking a few rows would not compute all of them.
        batch.persist()
        try:
            count = batch.count()
            rows = batch.head(self._n) if self._whole else batch.tail(self._n)
        finally:
            batch.unpersist()
        if self._whole:
            self._rows.clear()
        self._rows.extend(tuple(row) for row in rows)
        self._counts.append(count)
        self._show(f"micro-batch {number}: {count:,} rows")

    def follow(self, query: StreamingQuery) -> None:
        """Watch the query, and show when and why it ends."""
        self.query = query
        self._follower = threading.Thread(target=self._wait, name="pyrocket-view", daemon=True)
        self._follower.start()

    def stop(self) -> None:
        """Stop the query; the rows stay on the screen."""
        self.query.stop()

    @property
    def table(self) -> Table:
        """The rows as they are shown."""
        total = f"{sum(self._counts):,} rows in {len(self._counts):,} micro-batches"
        return Table(f"{self._state} ({total})", self._columns, list(self._rows))

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def _show(self, state: str) -> None:
        self._state = state
        self._screen()

    def _wait(self) -> None:
        try:
            self.query.awaitTermination()
        except Exception as error:  # The query failed, or Spark was stopped: both end the view.
            self._show(f"failed: {str(error).splitlines()[0]}")
        else:
            self._show("ended")


def _screen(view: StreamView) -> Callable[[], object]:
    """Return the function that shows the view: it updates a cell's output, or prints."""
    display = _display_of_notebook()
    if display is None:
        return lambda: sys.stdout.write(f"{view!r}\n")
    handle = display(view, display_id=True)
    return lambda: handle.update(view)


def _display_of_notebook() -> Any:
    """Return IPython's `display`; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
