"""Processes that start quickly: forked from a server that has imported the modules of a broker."""

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.reduction import DupFd
from subprocess import TimeoutExpired

# A test's process cannot fork: it has the threads of gRPC.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("pandas", "pyarrow.compute", "pyrocket.client", "pyrocket.tools.cli"),
        *("pyrocket.server.monitoring", "pyrocket.server.nameserver.process"),
        *("pyrocket.server.process", "pyrocket.server.replica.process"),
    ]
)


class Forked:
    """A process that calls a function, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, function, *arguments, log=None):
        """Start the process. Both outputs are written to `log`, a file, or else to pipes."""
        pipes = [] if log else [os.pipe(), os.pipe()]
        writers = [writer for _, writer in pipes]
        outputs = _Outputs(writers or [log.fileno(), log.fileno()])
        given = function, arguments, dict(os.environ), outputs
        self._process = _CONTEXT.Process(target=_call, args=given, daemon=True)
        self._process.start()
        for writer in writers:
            os.close(writer)
        self.stdout, self.stderr = [os.fdopen(reader) for reader, _ in pipes] or [None, None]
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired(str(self._process), timeout)
        return self.returncode

    def send_signal(self, number):
        # Its parent, the server, may have seen its end first.
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout=None):
        with ThreadPoolExecutor(2) as pool:
            texts = pool.map(_rest, (self.stdout, self.stderr), timeout=timeout)
            self.wait(timeout)
            return tuple(texts)


class _Outputs:
    """File descriptors that are passed to the new process."""

    def __init__(self, numbers):
        self._numbers = numbers

    def __getstate__(self):
        return [*map(DupFd, self._numbers)]

    def __setstate__(self, passed):
        self._numbers = [one.detach() for one in passed]

    def become_standard(self):
        for standard, number in enumerate(self._numbers, 1):
            os.dup2(number, standard)
            os.close(number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", 1)


def run_command(*arguments):
    """Run a command of `pyrocket`; the whole process is this command."""
    from pyrocket.tools.cli import main

    sys.argv[:] = ["pyrocket", *arguments]
    main(arguments, prog_name="pyrocket")


def run_code(code, *arguments):
    """Run code, as `python -c` does."""
    sys.argv[:] = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})


def _call(function, arguments, variables, outputs):
    # Tests that run in the background of a shell ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outputs.become_standard()
    os.environ.clear()
    os.environ.update(variables)
    function(*arguments)


def _rest(file):
    """Return what was not read yet, and close the file."""
    if file.closed:
        return ""
    with file:
        return file.read()
