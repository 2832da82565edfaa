"""`foreach_batch` raises short errors, for which Spark's search does not overflow its stack."""

import pickle

import pytest
from pyrocket.errors import TopicNameError
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark_pyrocket import foreach_batch

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "boundary.py", line 53, in _rows
    raise error.with_traceback(None) from None
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
pyrocket.errors.SchemaError: [BODY_NOT_UTF8] the body is not UTF-8. Read it as BINARY.
"""
FRAMES = 100 * "\tat org.apache.spark.rdd.RDD.compute(RDD.scala:1)\n"
JAVA = f"""An error occurred while calling o130.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: {PYTHON}
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
{FRAMES}
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.spark.api.python.PythonException: {PYTHON}
\tat org.apache.spark.rdd.RDD.compute(RDD.scala:1)
\t... 1 more
"""
CAUSE = "pyrocket.errors.SchemaError: [BODY_NOT_UTF8] the body is not UTF-8. Read it as BINARY."


def failing(error):
    def save(rows, batch_id):
        raise error

    return foreach_batch(save)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError(JAVA), CAUSE),
        (PythonException(PYTHON), CAUSE),
        (ValueError(f"{PYTHON}\n SQLSTATE: 38000"), CAUSE),
        (ValueError("An error occurred while calling o1.x"), "ValueError"),
        (ValueError(), "ValueError"),
        (RuntimeError("x" * 100_000), "x" * 1000),
        (
            TopicNameError("no topic.", remedy="Name one."),
            "[TOPIC_ILLEGAL] no topic. Name one.",
        ),
        (RuntimeError("An error occurred while calling o1.x\n: java.lang.Oops: why"), None),
    ],
)
def test_an_error_is_raised_again_with_its_last_line_only(error, text):
    with pytest.raises(RuntimeError) as caught:
        failing(error)(None, 0)
    assert str(caught.value) == (text or "java.lang.Oops: why")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_function_is_called_with_rows_and_number():
    seen = []

    def save(rows, batch_id):
        """Save the rows."""
        seen.append((rows, batch_id))

    wrapped = foreach_batch(save)
    assert wrapped("rows", 7) is None
    assert seen == [("rows", 7)]
    assert (wrapped.__name__, wrapped.__doc__) == ("save", "Save the rows.")


def test_an_interrupt_is_not_an_error_of_the_function():
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt())(None, 0)


def test_the_wrapped_function_can_be_sent_to_a_server():
    """Spark Connect pickles the function."""
    assert pickle.loads(cloudpickle.dumps(foreach_batch(print)))
