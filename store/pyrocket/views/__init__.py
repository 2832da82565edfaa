"""Views of a store, or of a copy of a store, besides the messages of its topics.

commit_log   every record of the log, whether or not a queue has it
retries      messages that consumers sent back, and dead letters
pending      scheduled messages, undecided half messages; the columns of all views
tables       topics, one row each, and consumer groups, one row per queue
views        `Views`: plans views and reads their parts

A plan is made once and costs O(files and queues). The parts of a plan do not change while the store
changes, so that other processes can read them.
"""
