"""A reader that runs while writers start, stop and are killed."""

import re
import threading

from pyrocket import Store
from support.stores import scan

_BODY = re.compile(rb"[-.0-9a-z]+:[0-9]+:\.*")


class Follower(threading.Thread):
    """Reads all new messages in a thread, verifies their checksums, and keeps them."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.seen, self.errors, self.done = {0: [], 1: []}, [], threading.Event()
        self._store = Store.open(path, read_only=True)

    def run(self):
        try:
            while not self.done.wait(0.001):
                self._look()
            self._look()
        except Exception as error:
            self.errors.append(error)
        self._store.close()

    def stop(self):
        """Read once more, stop, and return the messages. Raises the error of the thread, if any."""
        self.done.set()
        self.join(60)
        for error in self.errors:
            raise error
        return self.seen

    def _look(self):
        for queue_id, seen in self.seen.items():
            rows = scan(self._store, "t", queue_id, len(seen))
            assert [row for row, _ in rows] == list(range(len(seen), len(seen) + len(rows)))
            bodies = [body for _, body in rows]
            assert all(map(_BODY.fullmatch, bodies)), "something torn"
            seen += bodies
