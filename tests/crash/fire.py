"""Sends messages to a query of `pipe_job.py`, pauses and kills its processes in windows, and checks
the output.

Bodies are `key:number`, with consecutive numbers for each key. If the numbers of each key in a
queue are consecutive, nothing is lost, duplicated or out of order.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from crash.pauses.windows import FOLDER
from crash.pipe_job import SOURCE, TARGET
from pyrocket import Store, StoreConfig

HERE = Path(__file__).parent
KEYS = 16
CONFIG = StoreConfig(log_file_bytes=1 << 20, queue_file_entries=3_000)
"""Small files, so that batches span several files."""


class Pipe:
    """A store, a checkpoint, and the jobs that use them."""

    def __init__(self, folder):
        self.store, self._folder = folder / "store", folder
        self.checkpoint, self.log = folder / "checkpoint", folder / "job.log"
        self._sent = [0] * KEYS
        self._seen = {}
        self._jobs = []
        with Store.open(self.store, create=True, config=CONFIG) as store:
            store.topics.create(SOURCE, read_queues=2, write_queues=2)
            store.topics.create(TARGET)

    # The jobs

    def start(self, mode, pauses=None):
        """Start a job whose processes can be paused with `pauses`."""
        command = [sys.executable, HERE / "pipe_job.py", self.store, self.checkpoint, mode]
        environment = dict(os.environ)
        if pauses is not None:
            environment[FOLDER] = str(pauses.folder)
            paths = [str(HERE / "pauses"), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        with self.log.open("ab") as log:
            job = Job(command, log, environment)
        self._jobs.append(job)
        return job

    def batches(self):
        """Return the number of micro-batches that Spark has committed."""
        folder = self.checkpoint / "commits"
        names = folder.glob("*") if folder.exists() else ()
        return sum(path.name.isdigit() for path in names)

    def finish(self, seconds=180):
        """Let a job process everything, and check that the output is complete."""
        if not any(job.alive() for job in self._jobs):
            self.start("forever")
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._missing():
            time.sleep(0.2)
            self.look()
        assert not self._missing(), f"{self._missing()} are missing. {self.report()}"

    def stop(self):
        """Kill all running processes."""
        for job in self._jobs:
            job.kill()

    def report(self):
        """Return the end of the jobs' output."""
        return self.log.read_text(errors="replace")[-6_000:]

    # Input and output

    def feed(self, rows):
        """Append messages with all keys; if no other writer is open, the shutdown is clean."""
        bodies, keys = [], []
        for _ in range(rows // KEYS):
            for key in range(KEYS):
                bodies.append(f"k{key}:{self._sent[key]}")
                keys.append(f"k{key}")
                self._sent[key] += 1
        with Store.open(self.store) as store:
            store.append_batch(pa.record_batch({"body": bodies, "shardingKey": keys}), topic=SOURCE)

    def look(self):
        """Read new output, and check that each key's numbers are consecutive."""
        with Store.open(self.store, read_only=True) as store:
            for queue, offsets in store.offsets(TARGET).items():
                seen = self._seen.setdefault(queue, Seen())
                for batch in store.scan(TARGET, queue, seen.end, offsets.maximum, ["bodyText"]):
                    seen.take(batch[0].to_pylist())

    def _missing(self):
        """Return the number of sent messages missing in the output; `look` has found no
        duplicates."""
        seen = [number for seen in self._seen.values() for number in seen.numbers.values()]
        return sum(self._sent) - sum(seen)


@dataclass
class Seen:
    """Progress in an output queue: the next offset, and each key's next number."""

    end: int = 0
    numbers: dict = field(default_factory=dict)

    def take(self, bodies):
        for body in bodies:
            key, number = body.split(":")
            expected = self.numbers.get(key, 0)
            assert int(number) == expected, f"{body} at offset {self.end}, not {key}:{expected}"
            self.numbers[key] = expected + 1
            self.end += 1


class Job:
    """One process of `pipe_job.py` with all of its children."""

    def __init__(self, command, log, environment):
        self._process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def alive(self):
        return self._process.poll() is None

    def wait(self, seconds):
        return self._process.wait(seconds)

    def kill_jvm(self):
        """Kill the JVM alone; its child processes detect that by themselves."""
        children = psutil.Process(self._process.pid).children()
        (jvm,) = [child for child in children if child.name() == "java"]
        jvm.kill()

    def kill(self):
        """Kill the whole session, without any clean-up."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def workers(self):
        """Return the process ids of Spark's planners and workers."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
            return [child.pid for child in children if child.name().startswith("python")]
        except psutil.Error:
            return []


class Pauses:
    """Controls the pauses of `pauses/windows.py`."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def plan(self, window):
        """Pause the next process that reaches the window."""
        self.clear()
        draft = self.folder / "draft"
        draft.write_text(window)
        draft.rename(self.folder / "plan")

    def hit(self, seconds):
        """Wait until a process is paused, and return its id. After `seconds`, cancel the plan and
        return None.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (self.folder / "hit").exists():
                return int((self.folder / "hit").read_text())
            time.sleep(0.01)
        (self.folder / "plan").unlink(missing_ok=True)
        # A process may have been paused at the last moment: resume it.
        self.go()
        return None

    def go(self):
        """Resume the paused process."""
        (self.folder / "go").touch()

    def clear(self):
        for path in self.folder.iterdir():
            path.unlink()


def kill_process(process):
    """Kill one process, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
