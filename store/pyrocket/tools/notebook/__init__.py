"""A store at a glance, for notebooks and prompts: what is in it, who has read how far, messages.

    from pyrocket.tools import notebook
    notebook.topics("/data/store")
    notebook.peek("/data/store", "orders", 5)
    notebook.lag("/data/store", "billing")

Each returns a `Table`: HTML in a notebook, text at a prompt, and rows for programs. A store is a
path, which is opened for reading for the moment, or an open `Store`; without one it is that of the
environment variable PYROCKET_STORE, as in `notebook.peek(topic="orders")`. Nothing is ever written.
"""

from pyrocket.tools.notebook.messages import peek
from pyrocket.tools.notebook.progress import groups, lag
from pyrocket.tools.notebook.table import Table
from pyrocket.tools.notebook.topics import queues, topics

__all__ = ["Table", "groups", "lag", "peek", "queues", "topics"]
