"""Errors raised to Spark have one stack frame of pyrocket; bugs, and errors at level DEBUG, keep
all.
"""

import logging
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from types import FunctionType
from typing import get_origin

import pyrocket
import pyspark_pyrocket
import pytest
from pyrocket.errors import OptionError
from pyspark.sql.types import StructType
from pyspark.sql.utils import AnalysisException, PythonException, StreamingQueryException
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.source import stream_reader
from pyspark_pyrocket.worker import LOG
from support.machines import SOURCE_RUNNER, pass_for

OURS = tuple(f"{Path(module.__file__).parent}/" for module in (pyrocket, pyspark_pyrocket))


def frames_of_ours(text):
    lines = [line for line in text.splitlines() if line.strip().startswith('File "')]
    return [line for line in lines if line.split('"')[1].startswith(OURS)]


@called_by_spark
class Called:
    """A class for Spark to call, which raises an error below several frames."""

    def __init__(self, error):
        self.error = error

    def method(self):
        self._deeper()

    def rows(self):
        yield 1
        self._deeper()

    def _deeper(self):
        try:
            raise KeyError("a cause")
        except KeyError as cause:
            raise self.error from cause


def printed(call):
    with pytest.raises(Exception) as info:  # noqa: PT011
        call()
    return "".join(traceback.format_exception(info.value)), info.value


@pytest.mark.parametrize("call", [Called.method, lambda called: list(called.rows())])
def test_an_error_is_raised_with_one_frame_and_no_cause(call):
    error = OptionError("no", remedy="yes", code="OPTION_CONFLICT")
    text, raised = printed(lambda: call(Called(error)))
    assert raised is error
    assert (raised.code, raised.message, raised.remedy) == ("OPTION_CONFLICT", "no", "yes")
    assert len(frames_of_ours(text)) == 1
    assert "_deeper" not in text
    assert "a cause" not in text
    # Raise the same error again: a failed reader raises it at each call.
    assert len(frames_of_ours(printed(lambda: call(Called(error)))[0])) == 1


@pytest.mark.parametrize("call", [Called.method, lambda called: list(called.rows())])
def test_a_bug_keeps_all_frames(call):
    text, _ = printed(lambda: call(Called(ValueError("a bug"))))
    assert "_deeper" in text
    assert "a cause" in text


@pytest.mark.parametrize("call", [Called.method, lambda called: list(called.rows())])
def test_log_level_debug_keeps_all_frames(call, monkeypatch):
    monkeypatch.setattr(LOG, "level", LOG.level)
    LOG.setLevel(logging.DEBUG)
    try:
        text, _ = printed(lambda: call(Called(OptionError("no"))))
    finally:
        LOG.setLevel(logging.NOTSET)
    assert "_deeper" in text
    assert "a cause" in text


@pytest.mark.parametrize(("value", "level"), [("debug", 10), ("loud", 0)])
def test_the_environment_sets_the_level_in_every_process(value, level):
    program = "from pyspark_pyrocket.worker import LOG; print(LOG.level)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYROCKET_LOG_LEVEL": value, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(level)


def test_decorated_objects_can_be_pickled():
    called = pickle.loads(pickle.dumps(DefaultSource({"path": "/s", "topic": "t"})))
    assert called.options == {"path": "/s", "topic": "t"}
    assert called.reader.__doc__
    assert called.reader.__name__ == "reader"


def test_a_failed_stream_reader_raises_its_error_with_one_frame_each_time(box, monkeypatch):
    box.create()
    pass_for(monkeypatch, SOURCE_RUNNER)
    source = DefaultSource({**box.options, "unheard_of": "x"})
    batch_reader = source.streamReader(StructType().add("body", "binary"))
    for ask in (batch_reader.getDefaultReadLimit, batch_reader.prepareForTriggerAvailableNow) * 2:
        text, error = printed(ask)
        assert isinstance(error, OptionError)
        assert len(frames_of_ours(text)) == 1


def test_spark_shows_one_frame_of_pyrocket_and_the_error_in_one_line(spark, box, tmp_path, jobs):
    """An invalid option is an error before any task runs."""
    box.create(queues=1).send(b"\xff")
    frame = spark.createDataFrame([("x", "a b")], "body STRING, key STRING")

    def read(**options):
        asked = {**box.options, "valueFormat": "string", **options}
        spark.read.format("pyrocket").options(**asked).load().collect()

    def write(mode="append", **options):
        frame.write.format("pyrocket").mode(mode).options(**box.options, **options).save()

    def drain(**options):
        stream = spark.readStream.format("pyrocket").schema("body STRING").options(**box.options)
        stream = stream.options(startingOffsets="earliest", **options).load()
        query = stream.writeStream.format("noop").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    mistakes = [
        ("OPTION_OVERWRITE", AnalysisException, lambda: write("overwrite")),
        ("OPTION_UNKNOWN", AnalysisException, lambda: write(tagz="x")),
        ("OPTION_UNKNOWN", StreamingQueryException, lambda: drain(tagz="x")),
        ("MESSAGE_ILLEGAL", PythonException, write),
        ("BODY_NOT_UTF8", PythonException, read),
        ("BODY_NOT_UTF8", StreamingQueryException, drain),
    ]
    for code, kind, call in mistakes:
        with pytest.raises(kind, match=code) as info:
            call()
        text = str(info.value)
        assert len(frames_of_ours(text)) == 1, text
        assert text.count(code) == 1, text
        assert not code.startswith("OPTION") or jobs() == 0
    assert box.rows() == 1


def test_every_class_that_spark_calls_has_the_boundary():
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark_pyrocket.sink import staged_writer, writer
    from pyspark_pyrocket.source import batch_reader

    bases = (
        *(DataSource, DataSourceReader, DataSourceStreamReader),
        *(DataSourceWriter, DataSourceStreamWriter),
    )
    modules = (sys.modules[DefaultSource.__module__], batch_reader, stream_reader)
    modules = (*modules, writer, staged_writer)
    found = {kind for module in modules for kind in vars(module).values() if is_ours(kind, bases)}
    assert len(found) == 8
    for kind in found:
        for name, method in vars(kind).items():
            if not name.startswith("_") and isinstance(method, FunctionType):
                assert hasattr(method, "__wrapped__"), f"{kind.__name__}.{name}"


def is_ours(kind, bases):
    # In Python 3.10 an alias such as `dict[str, Any]` is an instance of `type`.
    is_class = isinstance(kind, type) and not get_origin(kind) and issubclass(kind, bases)
    return is_class and kind.__module__.startswith("pyspark_pyrocket")
