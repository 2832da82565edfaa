"""The exactly-once sink: tasks stage batches, and one process publishes each batch once.

A batch, file by file:

1. Each task calls `Sink.stage` (`sink`) and passes its rows to a `Stager`, which encodes them as
   records in a file beside the log (`staged_file`, in a folder of `staging`). Readers ignore this
   file, and it is not flushed: after a crash, the query stages its rows again. The task returns a
   small `Staged` to the driver.
2. The driver calls `Sink.publish`, and `publisher` opens and checks the staged files and creates
   missing topics. `decision` determines whether the batch is new, is dropped because it was
   published before, or is rejected because another run, checkpoint or store is newer.
3. Under the write lock, `publisher` consults `decision` again and appends a *publish record* and
   all rows of all topics in one append. The rows become visible together, and are flushed.
4. `ledger` finds the last published batch of each query in the publish records, and saves a summary
   in `pyrocket/sink.json` before their log files are deleted. `empty_batches` records the batches
   without rows, for which no record is appended.
5. `sink` recycles the staged files. Files of tasks that failed are deleted after a week.

Clients of a broker stage in the same way: `uploads` writes their checked records block by block.

`batch` has the types that applications use, `pyrocket.formats.publish_record` and `staged_block`
the bytes.
"""
