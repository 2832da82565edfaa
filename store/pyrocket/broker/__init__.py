"""The broker: a store that serves other machines. A library of plain methods; `rpc` is its wire.

source        everything that readers ask for, all queues at once
sink          everything that writers ask for
append_queue  the thread that appends, for all clients together
admin         topics, groups and retention
broker        the store, these parts and its services, as one object with a life
settings      every setting, from flags, environment and files
access        users and their rights
files         files of an administrator, read again when they change
running       what a broker can do at this moment
"""
