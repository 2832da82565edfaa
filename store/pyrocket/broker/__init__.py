"""The broker: a store that serves other machines. A library of plain methods; `rpc` is its wire.

source     everything that readers ask for, all queues at once
sink       everything that writers ask for
admin      topics, groups and retention
append_queue  the thread that appends, for all clients together
broker     the store, its source and its services, as one object with a life
"""
