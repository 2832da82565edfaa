"""Errors, signals, logs and garbage collection in Spark's processes.

Spark's source runner is a separate process on the driver; in these tests this process simulates it.
"""

import gc
import logging
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from pyrocket import Message, Store
from pyrocket.errors import OptionError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_pyrocket import DefaultSource, worker
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from pyspark_pyrocket.worker import LOG
from support.machines import SOURCE_RUNNER, pass_for

SCHEMA = default_columns(kafka=False, headers=False, text=False)
ALL = ReadAllAvailable()


def make(box, **options):
    asked = {key: value for key, value in {**box.options, **options}.items() if value is not None}
    return DefaultSource(asked).streamReader(schema=SCHEMA)


@pytest.fixture
def runner(box, monkeypatch):
    """Make this process look like the source runner without a signal handler."""
    pass_for(monkeypatch, SOURCE_RUNNER)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)
    forget(box.path)


@pytest.fixture
def unset_log(monkeypatch):
    """Return a function that resets logging; a test calls it after pytest's set-up."""

    def unset():
        for name, value in {"handlers": [], "propagate": False, "level": logging.NOTSET}.items():
            monkeypatch.setattr(LOG, name, value)

    return unset


def test_outside_the_source_runner_invalid_options_are_rejected_immediately(box):
    box.create()
    with pytest.raises(OptionError):
        make(box, unheard_of="x")


def test_source_runner_raises_errors_of_creation_at_the_first_call(box, runner):
    """Spark's runner would replace an immediate error by an UnboundLocalError of its own."""
    box.create()
    reader = make(box, unheard_of="x")
    for ask in (
        reader.prepareForTriggerAvailableNow,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, ALL),
        lambda: reader.read(None),
    ):
        with pytest.raises(OptionError):
            ask()
    reader.stop()


def test_sigterm_in_the_source_runner_raises_system_exit(box, runner):
    """SIGTERM then runs `stop`; by default SIGTERM would end the process without calling `stop`."""
    make(box.create())
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # The second SIGTERM is ignored.


def test_sigterm_does_not_interrupt_stop(box, runner):
    """Spark closes the socket of a runner, which calls `stop`, and then sends SIGTERM."""
    reader = make(box.create(), commitToGroup="g")
    reader.follower.stop = lambda: signal.raise_signal(signal.SIGTERM)
    reader.stop()


def test_source_runner_logs_the_start_of_a_query_to_stderr(box, runner, unset_log, capsys):
    unset_log()
    make(box.create()).initialOffset()
    assert "INFO pyrocket: a new query on t" in capsys.readouterr().err


def test_a_log_line_names_at_most_ten_topics(box, caplog):
    """A query may read thousands of topics."""
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        box.other(name).create(queues=1)
    ten = f"{', '.join(names[:10])} and 2 more in {box.path}"
    with caplog.at_level(logging.INFO):
        reader = make(box, topic=None, subscribePattern="t.*", startingOffsets="earliest")
        start = reader.initialOffset()
        assert f"a new query on {ten} starts" in caplog.text
        make(box, topic=None, subscribePattern="t.*").latestOffset(start, ALL)
        assert f"resuming from the checkpoint on {ten}" in caplog.text
    forget(box.path)


def test_outside_the_source_runner_signals_and_logs_stay_unchanged(
    box, runner, unset_log, monkeypatch
):
    unset_log()
    pass_for(monkeypatch, "pytest")
    make(box.create())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert LOG.handlers == []


def test_source_runner_is_recognised_by_its_main_module(monkeypatch):
    assert not worker.in_source_runner()
    code = """
        import sys, types
        from pyspark_pyrocket import worker
        name = "pyspark.sql.streaming.python_streaming_source_runner"
        sys.modules["__main__"].__spec__ = types.SimpleNamespace(name=name)
        assert worker.in_source_runner()
    """
    subprocess.run([sys.executable, "-c", "\n".join(map(str.strip, code.splitlines()))], check=True)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_warning_of_a_sink_is_logged_to_standard_error(box, unset_log, capsys, delivery):
    unset_log()
    columns = StructType([StructField("body", StringType())])
    source = DefaultSource({**box.options, "delivery": delivery, "nullBody": "drop"})
    writer = source.writer(columns, overwrite=False)
    rows = pa.record_batch({"body": pa.array(["x", None])})
    writer.commit([writer.write(iter([rows]))])
    assert "WARNING pyrocket: rows without a body" in capsys.readouterr().err


def test_sigterm_runs_finally_blocks_of_the_runner():
    code = (
        "import os, signal, time\n"
        "from pyspark_pyrocket.worker import exit_on_sigterm\n"
        "exit_on_sigterm()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(30)\n"
        "finally:\n"
        "    print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped\n")


def test_runner_logs_to_stderr_once():
    code = (
        "from pyspark_pyrocket.worker import LOG, log_to_stderr\n"
        "log_to_stderr()\n"
        "log_to_stderr()\n"
        "LOG.info('hello')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("INFO pyrocket: hello") == 1


@pytest.fixture
def thawed(monkeypatch):
    """No object is frozen, as in a worker before its first task."""
    monkeypatch.setattr(worker, "_frozen", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


READS = {
    "messages": {},
    "keys": {"keys": "k"},
    "scheduled": {"view": "scheduled"},
    "log": {"view": "commitlog"},
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_first_read_of_a_task_freezes_loaded_objects_for_the_collector(box, thawed, read):
    """With pyarrow loaded a collection takes 40 ms, and Spark runs one after every task."""
    box.create(queues=1)
    with Store.open(box.path) as store:
        store.append(Message(topic="t", body=b"x", keys=["k"]))
        store.append(Message(topic="t", body=b"x", delay_level=9))
    reader = DefaultSource({**box.options, **read}).reader(SCHEMA)
    for partition in reader.partitions():
        assert gc.get_freeze_count() == 0
        assert sum(batch.num_rows for batch in reader.read(partition)) >= 1
    assert gc.get_freeze_count() > 10_000
    forget(box.path)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_first_write_of_a_task_freezes_loaded_objects_for_the_collector(box, thawed, delivery):
    columns = StructType([StructField("body", StringType())])
    source = DefaultSource({**box.options, "delivery": delivery})
    writer = source.writer(columns, overwrite=False)
    assert gc.get_freeze_count() == 0
    writer.commit([writer.write(iter([pa.record_batch({"body": ["x"]})]))])
    assert gc.get_freeze_count() > 10_000
    assert box.bodies() == [b"x"]
