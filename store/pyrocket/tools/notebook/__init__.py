"""Tables of a store for notebooks and prompts: topics, groups, lag and messages.

    from pyrocket.tools import notebook
    notebook.topics("/data/store")
    notebook.peek("/data/store", "orders", 5)
    notebook.lag("/data/store", "billing")

Each function returns a `Table`: HTML in a notebook, text at a prompt, and rows for programs. The
store is an open `Store`, a path, which is opened read-only, or a broker, as in
`notebook.topics(notebook.at("broker:8081"))`. Without a store, as in
`notebook.peek(topic="orders")`, the environment variable PYROCKET_STORE or PYROCKET_ENDPOINT names
it. Nothing is written.
"""

from pyrocket.tools.notebook.tables import Table, at, groups, lag, peek, queues, topics

__all__ = ["Table", "at", "groups", "lag", "peek", "queues", "topics"]
