"""Several processes on one simulated clock: each has an event loop, and may be stopped or killed.

The loops run in turn, each until it waits; then the clock moves to the next timer of all loops. A
run with the same inputs has the same order of events.
"""

import asyncio
import math

from support.simulated_loop import START_S, SimulatedLoop


class Process(SimulatedLoop):
    """The event loop of one process. While it is stopped, replies and timers wait.

    Attributes:
        name: For the messages of errors.
        errors: Exceptions of the loop's tasks that were not awaited.
    """

    def __init__(self, processes, name):
        super().__init__()
        self._processes, self.name = processes, name
        self._slept_s = 0
        self._stopped_s = None
        self.errors = []
        self.set_exception_handler(self._note)

    def time(self):
        """Return the time of this machine's monotonic clock, which stands still while it sleeps."""
        return self._processes.now_s - self._slept_s

    def boot_s(self):
        """Return the time of a clock that does not stop while the machine sleeps."""
        return self._processes.now_s

    def advance(self, seconds):
        """Do nothing: `Processes` moves the clock."""

    def suspend(self):
        """Stop the process, as SIGSTOP does; it must not be stopped yet."""
        self._stopped_s = self._processes.now_s

    def resume(self, *, has_slept=False):
        """Continue a stopped process. `has_slept`: its machine slept, so its clock stood still."""
        if has_slept:
            self._slept_s += self._processes.now_s - self._stopped_s
        self._stopped_s = None

    @property
    def is_stopped(self):
        return self._stopped_s is not None

    def kill(self):
        """Stop the process for good, as SIGKILL does."""
        self._processes.remove(self)

    def next_s(self):
        """Return when the loop has something to run."""
        if self._stopped_s is not None:
            return math.inf
        if self._ready:
            return self._processes.now_s
        return self._scheduled[0].when() + self._slept_s if self._scheduled else math.inf

    def step(self):
        """Run what is ready, once."""
        self.stop()
        self.run_forever()

    def end(self):
        """Cancel all tasks, and close the loop."""
        self._stopped_s = None
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.step()
        self.close()

    def _note(self, loop, context):
        self.errors.append(context.get("exception") or context["message"])


class Processes:
    """All processes of a simulation. The first one, `home`, has all that is not simulated."""

    def __init__(self):
        self.now_s = float(START_S)
        self._live, self._dead = [], []
        self.home = self.start("home")

    def start(self, name):
        """Return a new process."""
        process = Process(self, name)
        self._live.append(process)
        return process

    def remove(self, process):
        """Never run a process again."""
        self._live.remove(process)
        self._dead.append(process)

    def run(self, main):
        """Run a coroutine in `home`, and the other processes until it ends; return its result."""
        try:
            task = self.home.create_task(main)
            while not task.done():
                process = min(self._live, key=Process.next_s)
                if (next_s := process.next_s()) == math.inf:
                    raise RuntimeError("all processes wait, and no timer is set")
                self.now_s = max(self.now_s, next_s)
                process.step()
            return task.result()
        finally:
            for process in [*self._live, *self._dead]:
                process.end()
