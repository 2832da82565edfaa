"""Everything here can be rebuilt from the log.

consume_queue   one queue: queue offset → log offset, like an array
queues          all queues of a store
dispatcher      log records → queue entries
tags_code       what an entry says about its message: the hash of its tags, or when it is due
appender        the exclusive section: place, write, publish, dispatch
settling        files of a queue that was written anew: durable, and as old as they are
scan            a run of a queue as Arrow batches
time_lookup     store time → queue offset
key_items       what the key index holds of a run of the log
key_file        one file of the key index: key → log offsets
key_draft       a new one
key_index       all files of the key index
key_span        which of them count: no key is missing between them
key_files       which of them writers keep and continue
key_notes       keys that wait for their place in it
key_builder     keeping it up with the log
key_tail        what it does not know yet
"""
