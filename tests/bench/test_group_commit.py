"""The number of durable appends per fsync, compared with one appender alone in the same run.

The injected fsync sleeps 2 ms on every machine and disk. Aims: at least four appends per
fsync and four times the rate of one appender, with eight threads and with eight processes.
"""

import os
import subprocess
import sys
import threading
import time

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from support.stores import message

CONFIG = StoreConfig(log_file_bytes=64 << 20, flush="sync")
FSYNC_SECONDS, APPENDERS = 0.002, 8

_CHILD = """
import sys
from pathlib import Path
from bench import test_group_commit as bench
count, fsyncs = bench.one_process(Path(sys.argv[1]), float(sys.argv[2]))
print(count, fsyncs)
"""


class CountedFsync:
    """An fsync that takes 2 ms and counts its calls."""

    def __init__(self):
        self.count = 0

    def __call__(self, descriptor):
        self.count += 1
        time.sleep(FSYNC_SECONDS)


def append_until(store, end):
    """Append single messages, at least one, until `end` (monotonic seconds); return their
    number."""
    count = 0
    while not count or time.monotonic() < end:
        store.append(message())
        count += 1
    return count


def one_process(path, seconds):
    io.sync = CountedFsync()
    store = Store.open(path, config=CONFIG)
    store.append(message())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    start = float(sys.stdin.readline())
    time.sleep(max(0, start - time.monotonic()))
    io.sync.count = 0
    count, fsyncs = append_until(store, start + seconds), io.sync.count
    store.close(clean=False)
    return count, fsyncs


def in_threads(path, threads, seconds):
    """Return the numbers of durable appends and fsyncs."""
    counts = []
    with Store.open(path, config=CONFIG) as store:
        store.append(message())
        io.sync.count = 0
        end = time.monotonic() + seconds
        work = [
            threading.Thread(target=lambda: counts.append(append_until(store, end)))
            for _ in range(threads)
        ]
        for one in work:
            one.start()
        for one in work:
            one.join()
        return sum(counts), io.sync.count


def in_processes(path, processes, seconds):
    """Return the numbers of durable appends and fsyncs."""
    command = [sys.executable, "-c", _CHILD, path, str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    work = [subprocess.Popen(command, **pipes, env=environment) for _ in range(processes)]
    assert [one.stdout.readline() for one in work] == ["ready\n"] * processes
    start = time.monotonic() + 0.1
    for one in work:
        one.stdin.write(f"{start}\n")
        one.stdin.flush()
    answers = [one.communicate()[0].split() for one in work]
    return tuple(sum(int(answer[at]) for answer in answers) for at in (0, 1))


@pytest.mark.parametrize("run", [in_threads, in_processes])
def test_eight_appenders_share_fsyncs(tmp_path, monkeypatch, large, report, run):
    monkeypatch.setattr(io, "sync", CountedFsync())
    path, seconds = tmp_path / "store", 3 if large else 0.1
    appenders = APPENDERS if large else 2
    Store.open(path, create=True, config=CONFIG).topics.create("t")
    alone, fsyncs_alone = run(path, 1, seconds)
    together, fsyncs = run(path, appenders, seconds)
    assert alone
    assert together
    report.line(
        f"{run.__name__}: {appenders} appenders {together / seconds:,.0f} durable appends/s,"
        f" {together / fsyncs:.1f} per fsync; one {alone / seconds:,.0f}/s,"
        f" {alone / fsyncs_alone:.1f} per fsync: {together / alone:.1f} times. Injected fsync"
        f" {FSYNC_SECONDS * 1000:.0f} ms"
    )
