"""The broker: a store that serves other machines. A library of plain methods; `rpc` is its wire.

source     everything that readers ask for, all queues at once
broker     the store, its source and its services, as one object with a life
"""
