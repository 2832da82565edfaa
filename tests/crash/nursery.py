"""A process that has imported all modules and forks children on request, so that the children start
fast.

Requests and answers are lines of JSON: {"run": task, "with": {...}} → process id, and {"wait":
process id} → exit status (negative: killed by that signal). Tasks are the functions of
`crash.children`.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback


class Nursery:
    """Sends requests to the forking process."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from crash import nursery; nursery.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            text=True,
        )

    def start(self, task, **arguments):
        """Start a child, and return its process id."""
        given = {name: _plain(value) for name, value in arguments.items()}
        return self._ask({"run": task.__name__, "with": given})

    def wait(self, process):
        """Wait for a child, and return its exit status: negative if a signal killed it."""
        return self._ask({"wait": process})

    def run(self, task, **arguments):
        """Start a child and wait for it."""
        return self.wait(self.start(task, **arguments))

    def kill(self, process):
        """Kill a child."""
        os.kill(process, signal.SIGKILL)
        self.wait(process)

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def wait_for(file):
    """Wait until a child has created the file; return it."""
    deadline = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.01)
    return file


def wait_for_lines(file, count):
    """Wait until a child has written this many lines."""
    wait_for(file)
    deadline = time.monotonic() + 30
    while file.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, f"{file} has fewer than {count} lines"
        time.sleep(0.01)


def _plain(value):
    return value if isinstance(value, int | float | str | list | None) else str(value)


def serve():
    """Execute the requests on standard input."""
    import pyarrow.compute
    from crash import children
    from pyrocket.disk import io

    pyarrow.array([b""])  # Imports pandas, which each child would do.
    # Without power losses, an fsync only costs time.
    io.sync = io.sync_directory = lambda target: None
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        if "run" in request:
            answer = _fork(getattr(children, request["run"]), request["with"])
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _fork(task, arguments):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        status = task(**arguments) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
