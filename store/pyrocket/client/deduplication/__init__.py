"""De-duplication: a message that is delivered again is not consumed again.

listener     `Deduplicated` wraps a listener, and keeps a mark for the key of each consumed message
store        what `Deduplicated` requires of a store of marks
sqlite       marks in a SQLite file
transaction  marks in the caller's database, committed together with the work of the listener
cache        marks of recently consumed messages, in memory, in front of another store

What a store guarantees if all consumers of a group share it, and every message is delivered at
least once:

- `TransactionMarks`: the changes that a listener makes through the connection are committed exactly
  once for each key. This does not include effects outside the database, such as an email.
- `SqliteMarks`: the work of each key is done at least once, and only once unless a consumer dies,
  the machine loses power, the file cannot be written, or a listener runs longer than its lease. If
  a consumer dies between the work and the mark, the work is repeated after the lease.

Both guarantees end when the mark of a key expires.
"""
