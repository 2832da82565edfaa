"""The exactly-once sink: batches staged by tasks and published by one process, once.

A batch, file by file:

1. Each task calls `Sink.stage` (`sink`) and passes its rows to a `Stager`, which encodes
   them as records in a file beside the log (`staged_file`, in a folder of `staging`). Readers
   never look there, and nothing is flushed: after a crash the query stages its rows again. The
   task returns a small `Staged`, which travels to the driver.
2. The driver calls `Sink.publish`, and `publisher` opens and checks the staged files and creates
   missing topics. `decision` says what happens to the batch: it is new, or was published before
   (then it is dropped), or is refused because another run, checkpoint or store is newer.
3. Under the write lock, `publisher` asks `decision` again and appends a *publish record* and all
   rows of all topics in one append. They become visible together, and are flushed.
4. `ledger` knows the last published batch of each query from these records, and saves them in
   `pyrocket/sink.json` before the log forgets them. `empty_batches` has the batches without rows,
   which append nothing.
5. `sink` recycles the staged files. Files of tasks that failed are deleted after a week.

A broker's clients stage the same way: `receiver` checks the records that they send, and `uploads`
writes them block by block.

`batch` has the types that applications use, `pyrocket.formats.publish_record` and `staged_block`
the bytes.
"""
