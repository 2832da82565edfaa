"""What can be wrong with a store, found by looking: no lock is taken, nothing is written.

finding     one finding: a code, how bad, where, what, and the way out
report      all of them, and what has been looked at
any_run     reading folders in which files are missing, cut short or foreign
files       names and lengths of files
log_end     its last files, which may be missing
log         the chain of records, their structure and checksums
log_report  what is said of it, and what it means for the next writer
queues      each record has its entry, and each entry its record
keys        each key has its item in the index, and each item its key
timers      the index of timers that wait has all of them
config      JSON files, RocketMQ's and ours
topics      the topic table has all topics, and groups' offsets lie in their queues
state       checkpoint, and how the store was left
"""
