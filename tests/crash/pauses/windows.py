"""Windows of an exactly-once sink in which a test pauses a process, to kill it or to resume it.

A test writes a window's name to the file `plan` in the folder PYROCKET_PAUSES. The first process
that reaches the window deletes the plan, writes its id to the file `hit`, and waits for the file
`go`.

    the source plans              latestOffset, in the process of the source
    the sink plans                store and topic are known, in a planner of the driver
    a task reads                  before the first row, in the worker that reads
    a task begins                 before the first row, in the worker that stages
    a task stages                 a part of its file is written
    a task has staged             before its message is sent to the driver
    publication begins            before any check
    reserved                      the log has a record with the end of the batch
    records in part               some records are written after the log's end
    before the first fsync        all records are written, except their first eight bytes
    before the head               as before, and the written bytes are durable
    after the head                the first eight bytes are written, but not durable
    before published              the batch is complete and durable, but not published
    after published               the batch is published, but not in the queues
    queues in part                the entries of some messages are in the queues
    after dispatched              readers see the entire batch
    staging is removed            a staged file is about to be deleted or reused
    the ledger is saved           `sink.json` was just replaced
    publication done              Spark has not yet committed the batch
"""

import functools
import importlib.machinery
import os
import re
import sys
import time
from pathlib import Path

FOLDER = "PYROCKET_PAUSES"

WINDOWS = tuple(re.findall(r"^    (\S.*?)  ", __doc__, re.MULTILINE))
RARE = ("the ledger is saved",)
"""Windows that not every micro-batch reaches."""

LONGEST_PAUSE = 300
_HEAD_BYTES = 8

_publishing = False


def install():
    """Patch the modules when they are imported; import nothing else here."""
    if os.environ.get(FOLDER):
        sys.meta_path.insert(0, _Patching(dict(_PATCHES)))


def reach(window):
    """Wait here if the test has planned this window."""
    folder = Path(os.environ[FOLDER])
    plan = folder / "plan"
    try:
        if plan.read_text() != window:
            return
        plan.rename(folder / f"taken.{os.getpid()}")
    except FileNotFoundError:
        return
    draft = folder / f"hit.{os.getpid()}"
    draft.write_text(str(os.getpid()))
    draft.rename(folder / "hit")
    until = time.monotonic() + LONGEST_PAUSE
    while not (folder / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)


class _Patching:
    """Finds each module to patch, once, before any other finder."""

    def __init__(self, patches):
        self._patches = patches

    def find_spec(self, name, path=None, target=None):
        patch = self._patches.pop(name, None)
        spec = patch and importlib.machinery.PathFinder.find_spec(name, path)
        if not spec:
            return None
        run = spec.loader.exec_module

        def run_and_patch(module):
            run(module)
            patch(module)

        spec.loader.exec_module = run_and_patch
        return spec


def _around(owner, name, before=lambda *given: None, after=lambda *given: None):
    real = getattr(owner, name)

    @functools.wraps(real)
    def instead(*given, **named):
        before(*given)
        result = real(*given, **named)
        after(*given)
        return result

    setattr(owner, name, instead)


def _patch_tasks(module):
    _around(module, "read_partition", lambda *_: reach("a task reads"))


def _patch_source(module):
    _around(module.RocketStreamReader, "latestOffset", lambda *_: reach("the source plans"))


def _patch_sink(module):
    _around(module, "prepare_sink", after=lambda *_: reach("the sink plans"))


def _patch_writer(module):
    _around(
        module,
        "stage_rows",
        lambda *_: reach("a task begins"),
        lambda *_: reach("a task has staged"),
    )
    _around(module, "publish", _begin, _end)


def _begin(*_):
    global _publishing
    reach("publication begins")
    _publishing = True


def _end(*_):
    global _publishing
    _publishing = False
    reach("publication done")


def _patch_page(module):
    names = {module.RESERVED: "reserved", module.PUBLISHED: "published"}
    names[module.DISPATCHED] = "dispatched"

    def before(page, word, value):
        if _publishing and word == module.PUBLISHED:
            reach("before published")

    def after(page, word, value):
        if _publishing and word in names:
            reach("reserved" if word == module.RESERVED else f"after {names[word]}")

    _around(module.SharedState, "__setitem__", before, after)


def _patch_io(module):
    _around(module, "write_at", _before_write, _after_write)
    _around(module, "sync", _before_sync)
    _around(module, "unlink", _before_removal)
    _around(module, "rename", _before_removal, _after_rename)


def _before_write(descriptor, data, offset):
    if _publishing and _is_head(data) and "/commitlog/" in _path(descriptor):
        reach("before the head")


def _after_write(descriptor, data, offset):
    path = _path(descriptor)
    if not _publishing:
        if "/staging/" in path:
            reach("a task stages")
    elif "/commitlog/" in path:
        reach("after the head" if _is_head(data) else "records in part")
    elif "/consumequeue/" in path:
        reach("queues in part")


def _before_sync(descriptor):
    if _publishing and "/commitlog/" in _path(descriptor):
        reach("before the first fsync")


def _before_removal(path, *_):
    if _publishing and "/staging/" in str(path):
        reach("staging is removed")


def _after_rename(source, target):
    if str(target).endswith("/sink.json"):
        reach("the ledger is saved")


def _is_head(data):
    return memoryview(data).nbytes == _HEAD_BYTES


def _path(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


_PATCHES = {
    "pyrocket.disk.io": _patch_io,
    "pyrocket.disk.shared_state": _patch_page,
    "pyspark_pyrocket.source.task": _patch_tasks,
    "pyspark_pyrocket.source.stream_reader": _patch_source,
    "pyspark_pyrocket.sink.prepare": _patch_sink,
    "pyspark_pyrocket.sink.staged_writer": _patch_writer,
}
