"""Makes errors of a `foreachBatch` function end the query: `foreach_batch`.

Spark searches the text of such an error with a regular expression that needs stack space for each
character that follows "An error occurred while calling", with which py4j's errors begin. Errors of
tasks contain traces of Java with thousands of characters: the search overflows the stack, the query
ends without a result, and Spark still reports it as active.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PY4J = "An error occurred while calling"
_FRAMES = ("at ", "... ", "File ", "SQLSTATE", "Driver stacktrace", "JVM stacktrace", "~", "^")
_MAX_CHARACTERS = 1000

BatchFunction = Callable[["DataFrame", int], None]


def foreach_batch(function: BatchFunction) -> BatchFunction:
    """Return a function for `DataStreamWriter.foreachBatch` whose errors always end the query.

        query = events.writeStream.foreachBatch(foreach_batch(save)).start()

    An error of `function` is raised as a RuntimeError with the last line of its text, which names
    the cause.
    """

    @wraps(function)
    def call(rows: "DataFrame", batch_id: int) -> None:
        try:
            function(rows, batch_id)
        except Exception as error:
            reason = last_line(error)
        else:
            return
        raise RuntimeError(reason)

    return call


def last_line(error: Exception) -> str:
    """Return the last line of an error's text that is not a frame, without py4j's prefix."""
    lines = [line.strip() for line in str(error).splitlines()]
    texts = [line for line in lines if line and not line.startswith((*_FRAMES, _PY4J))]
    line = texts[-1] if texts else type(error).__name__
    return line.removeprefix(": ").removeprefix("Caused by: ")[:_MAX_CHARACTERS]
