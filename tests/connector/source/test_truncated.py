"""The machine crashes, and loses messages that a stream has already read."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyrocket import ScanTally, Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import LogTruncatedError, OffsetOutOfRangeError, StoreUnavailableError
from pyrocket.metadata.epochs import Epochs
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.policies import SKIP, LossPolicy
from pyspark_pyrocket.source.partitions import Ranges
from pyspark_pyrocket.source.task import read_range
from pyspark_pyrocket.transport.path import forget
from support.broker import served
from support.shares import share
from support.stores import (
    SMALL,
    batch,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
    words,
)
from support.transports import options_of

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture(params=share(["path", "endpoint"], 1))
def crashed(box, request):
    """The checkpoint of a stream that has read 30 messages; the log has lost the last 5.

    Four other messages have been stored since, the first one at offset 25. The stream continues on
    the directory or at its broker.
    """
    path = Path(box.path)
    store = filled(path, count=30)
    reader = stream(box)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    first_lost = store.read("t", 0, 25)[0].physical_offset
    store.close(clean=False)
    forget(box.path)
    reboot(path)
    file = next(one for one in log_files(path) if 0 <= first_lost - int(one.name) < 4096)
    overwrite(file, b"\1" * 200, first_lost - int(file.name))
    with Store.open(path) as recovered:
        assert recovered.max_offset("t", 0) == 25
        recovered.append(message(b"n25"))
        recovered.append_batch(batch([b"n26", b"n27", b"n28"], 0), topic="t")
    with options_of(request.param, path) as options:
        yield replace(box, address=options.get("endpoint", "")), json.loads(json.dumps(start))


def stream(box, **options):
    options = {**box.options, "startingOffsets": "earliest", **options}
    return DefaultSource(options).streamReader(schema=SCHEMA)


def bodies(reader, start):
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    return read(reader, reader.partitions(start, end)), end


def read(reader, tasks):
    rows = [batch.column("body").to_pylist() for task in tasks for batch in reader.read(task)]
    return [body[:6] for part in rows for body in part]


def test_by_default_the_truncation_is_reported(crashed):
    box, start = crashed
    with pytest.raises(LogTruncatedError, match=r"'t' queue 0 at offset 25.*read up to offset 30"):
        stream(box).latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize(
    ("policy", "first"), [("skip", b"n25"), ("earliest", b"000000"), ("latest", None)]
)
def test_a_policy_continues_with_the_messages_stored_since_the_crash(crashed, policy, first):
    box, start = crashed
    reader = stream(box, onDataLoss=policy)
    read, end = bodies(reader, start)
    assert (read or [None])[0] == first
    assert len(read) == {"skip": 4, "earliest": 29, "latest": 0}[policy]
    assert end["brokers"]["broker-a"]["epoch"] == 1
    assert end["lost"] == {"t": {"broker-a": {"0": 4 if policy == "latest" else 0}}}
    with Store.open(box.path) as store:
        store.append(message(b"later"))
    assert bodies(reader, end)[0] == [b"later"]


def test_a_replay_does_not_read_new_messages_at_truncated_offsets(crashed):
    """The micro-batch ended at 30; offsets 25 to 28 are now those of other messages."""
    box, start = crashed
    before, end = replayed(start, 20, 30)
    with pytest.raises(LogTruncatedError):
        stream(box).partitions(before, end)
    (task,) = stream(box, onDataLoss="skip").partitions(before, end)
    assert [(each.start, each.end) for each in task.work.ranges] == [(20, 25)]
    assert bodies(stream(box, onDataLoss="skip"), end)[0][0] == b"n25"


@pytest.mark.parametrize("end", [29, 30])
@pytest.mark.parametrize("few", [False, True])
def test_a_task_does_not_read_new_messages_at_truncated_offsets(crashed, caplog, end, few):
    """It was planned before the crash, and runs after other messages have these offsets."""
    box, start = crashed
    (task,) = stream(box, onDataLoss="skip").partitions(*replayed(start, 20, 25))
    (planned,) = task.work.ranges
    assert planned.epoch == 0
    ranges = [replace(planned, end=22), replace(planned, start=22, end=end)]
    task = replace(task, work=Ranges(tuple(ranges if few else [replace(planned, end=end)])))
    with pytest.raises(OffsetOutOfRangeError, match="was truncated at 25"):
        read(stream(box), [task])
    assert read(stream(box, onDataLoss="skip"), [task]) == [b"%06d" % at for at in range(20, 25)]
    assert f"reads the rest of [{22 if few else 20}, {end})" in caplog.text


def test_what_a_task_has_read_before_a_truncation_is_not_counted_as_lost(crashed, caplog):
    box, start = crashed
    (task,) = stream(box, onDataLoss="skip").partitions(*replayed(start, 20, 25))
    (planned,) = task.work.ranges

    def scan(each, tally):
        tally.entries += 8
        yield "messages 20 to 27"
        raise OffsetOutOfRangeError("the queue was truncated at 25.")

    source, skip = task.target.open_source(), LossPolicy(policy=SKIP)
    rows = read_range(source, replace(planned, end=29), skip, scan, ScanTally())
    assert [*rows] == ["messages 20 to 27"]
    assert "has lost 1 message;" in caplog.text


def replayed(offset, *ends):
    """Return stream offsets that end there, without starts of their own."""
    kept = {key: value for key, value in offset.items() if key != "from"}
    return [{**kept, "offsets": {"t": {"broker-a": {"0": end}}}} for end in ends]


@pytest.mark.parametrize("queues", ["whole", "cut"])
def test_a_stream_that_has_read_non_durable_messages_waits_for_a_recovery(box, caplog, queues):
    """The recovering process was killed; the next recovery may still find the messages read.

    The process may have been killed after truncating the queues and before completing them.
    """
    path = Path(box.path)
    filled(path, count=20).close()
    store = Store.open(path, config=SMALL)
    store.append_batch(batch(numbered(10, first=20), 0), topic="t")
    reader = stream(box)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.commit(start)
    store.close(clean=False)
    forget(box.path)
    reboot(path)
    page = words(path)
    page.invalidate()
    page.close()
    if queues == "cut":
        for file in queue_files(path):
            file.write_bytes(bytes(file.stat().st_size))
    waiting = stream(box)
    for _ in range(3):
        assert waiting.latestOffset(start, ReadAllAvailable()) == start
        waiting.reportLatestOffset()
    if queues == "cut":
        with pytest.raises(StoreUnavailableError, match="STORE_RECOVERING"):
            stream(box).initialOffset()
    (warning,) = [one for one in caplog.records if "killed while it recovered" in one.message]
    assert warning.levelname == "WARNING"
    with Store.open(path, config=SMALL) as recovered:
        assert recovered.max_offset("t", 0) == 30
        recovered.append(message(b"later!"))
    forget(box.path)
    assert bodies(stream(box), start)[0] == [b"later!"]
    forget(box.path)


def test_a_batch_after_a_crash_of_its_broker_reads_everything(box):
    """The driver's connection is older than the epoch."""
    path = Path(box.path)
    with ExitStack() as stack:
        address = stack.enter_context(served(filled(path, count=30)))
        place = replace(box, address=address)
        assert len(read_batch(place)) == 30
        stack.close()
        with Store.open(path) as store:
            Epochs(Layout(path)).begin({("t", 0): 25})
            assert store.history.epoch == 1
        with served(Store.open(path), port=int(address.rpartition(":")[2])):
            assert len(read_batch(place)) == 30


def read_batch(box):
    reader = DefaultSource(box.options).reader(SCHEMA)
    return read(reader, reader.partitions())
