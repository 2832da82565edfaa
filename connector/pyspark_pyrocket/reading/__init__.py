"""Reads, as Spark asks for them: planned on the driver, done by tasks.

bad_records       where tasks send what they cannot decode
surviving, task   ranges, or what is left of them → Arrow batches
key_read          the same of single messages
pending           of what waits
view_read         of whatever else a store holds
sampling          a few bodies of what a batch reads
value_fields      the columns of bodies where the user gives no schema
group_progress    the group that follows a stream
reader            a batch
source_creation   the store and topics that a new query creates
stream_reader     a stream
stream_start      everything that is checked before Spark asks a stream for an offset
"""
