"""Runs `pyrocket broker` with a measured event loop and, on request, slow fsyncs.

python -m support.watched_broker SECONDS DIR ARGUMENT…

SIGUSR1 starts the measurement. At the end, the process prints as JSON the longest time and the
longest CPU time between two waits of the loop. Until SIGUSR2, each fsync takes SECONDS longer.
"""

import json
import signal
import sys
import threading
import time

from pyrocket.disk import io
from pyrocket.server import process
from pyrocket.server.call_server import LoopWatch
from pyrocket.tools.cli import main


class CpuWatch(LoopWatch):
    def __init__(self):
        super().__init__()
        self._cpu, self.longest_cpu_s = time.thread_time(), 0.0
        signal.signal(signal.SIGUSR1, lambda *_: self.reset())

    def reset(self):
        self.longest_s = self.longest_cpu_s = 0.0

    def select(self, timeout=None):
        self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - self._cpu)
        found = super().select(timeout)
        self._cpu = time.thread_time()
        return found

    def close(self):
        sys.stdout.write(json.dumps({"held": self.longest_s, "cpu": self.longest_cpu_s}) + "\n")
        sys.stdout.flush()
        super().close()


def slow(function, seconds):
    hurry = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: hurry.set())

    def slowed(*arguments):
        hurry.wait(seconds)
        return function(*arguments)

    return slowed


if __name__ == "__main__":
    seconds, *arguments = sys.argv[1:]
    process.LoopWatch = CpuWatch
    io.sync = slow(io.sync, float(seconds))
    sys.exit(main(["broker", *arguments], prog_name="pyrocket"))
