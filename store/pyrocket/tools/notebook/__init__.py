"""Tables of a store for notebooks and prompts: topics, groups, lag and messages.

    from pyrocket.tools import notebook
    notebook.topics("/data/store")
    notebook.peek("/data/store", "orders", 5)
    notebook.lag("/data/store", "billing")

Each function returns a `Table`: HTML in a notebook, text at a prompt, and rows for programs. The
store is an open `Store` or a path, which is opened read-only; the default is the path in the
environment variable PYROCKET_STORE, as in `notebook.peek(topic="orders")`. Nothing is written.
"""

from pyrocket.tools.notebook.table import Table
from pyrocket.tools.notebook.tables import groups, lag, peek, queues, topics

__all__ = ["Table", "groups", "lag", "peek", "queues", "topics"]
