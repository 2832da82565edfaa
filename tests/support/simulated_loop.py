"""An event loop on a simulated clock: it never waits, and time passes when all tasks wait."""

import asyncio
import functools

START_S = 1_000_000


class _Selector:
    """Takes the place of a selector: instead of waiting, it advances the loop's clock."""

    def __init__(self, loop):
        self._loop = loop

    def select(self, timeout):
        if timeout is None:
            raise RuntimeError("all tasks of the simulated loop wait, and no timer is set")
        self._loop.advance(timeout)
        return ()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs tasks of one thread; a run with the same inputs has the same order of events."""

    def __init__(self):
        super().__init__()
        self._now_s = float(START_S)
        self._selector = _Selector(self)

    def time(self):
        return self._now_s

    def advance(self, seconds):
        self._now_s += max(seconds, 0)

    def _process_events(self, event_list):
        """There are no events of sockets."""

    def _write_to_self(self):
        """Nothing has to be woken: `select` does not wait."""


def run_simulated(main):
    """Run a coroutine to its end, in simulated time; return its result."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def simulated(test):
    """Run an async test in simulated time."""

    @functools.wraps(test)
    def run(*arguments, **named):
        run_simulated(test(*arguments, **named))

    return run
