"""Checks a store without taking a lock and without writing.

report      findings, with their code, severity, place, text and remedy, and what was checked
state       the shared state and the checkpoint, and whether the store changed during a check
files       names and lengths of the files of the log and the queues
log         the log: damaged ranges, a torn end, missing files
queues      the records of the log against the entries of the queues
keys        the keys of the log against the items of the key index
delays      delayed messages: entries of level queues, the timer index
metadata    JSON files of RocketMQ and pyrocket; topics, committed offsets
verify      all checks, in one pass over the log
"""
