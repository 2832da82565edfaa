"""Checks of a store. They read it without taking a lock and never write.

finding     one finding: code, severity, place, text and remedy
report      all findings, and what was checked
state       the shared state and the checkpoint, and whether the store changed during a check
files       names and lengths of the files of the log and the queues
log         the log: damage, a torn end, missing files
queues      each record has its entry, and each entry its record
keys        each key has its item in the key index, and each item its key
delays      delayed messages: entries of level queues, the timer index
metadata    JSON files, RocketMQ's and ours; topics and groups' offsets
verify      all of it in one pass over the log
"""
