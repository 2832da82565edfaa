"""Where the half and op queues begin for whoever has no turn: a store that is only read, say.

An append is published, moves the cursors, and is dispatched to its queues, in this order. Who looks
in between would see a put-back half message nowhere: the cursor is past it, and its copy is not in
the queue yet. So cursors count once all that was published when they were read is dispatched.
"""

import time

from pyrocket.disk.layout import Layout
from pyrocket.engine.reader import Reader
from pyrocket.metadata.service_cursors import Cursors, saved_cursors

_PATIENCE_SECONDS, _POLL_SECONDS = 1.0, 0.001


def seen_cursors(reader: Reader, layout: Layout) -> Cursors:
    """Return cursors that go with what the queues show from now on.

    They are those that were saved last, which are further back, where nobody's words are true, and
    where dispatching takes long: whoever appended has died then, or is at a large batch.
    """
    cursors, end = reader.cursors(), reader.log_end()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while cursors and reader.bound() < end:
        if time.monotonic() > deadline:
            return saved_cursors(layout)
        time.sleep(_POLL_SECONDS)
    return cursors or saved_cursors(layout)
