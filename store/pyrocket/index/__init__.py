"""Everything here can be rebuilt from the log.

consume_queue   one queue: queue offset → log offset, like an array
queues          all queues of a store
dispatcher      log records → queue entries
appender        the exclusive section: place, write, publish, dispatch
scan            a run of a queue as Arrow batches
time_lookup     store time → queue offset
"""
