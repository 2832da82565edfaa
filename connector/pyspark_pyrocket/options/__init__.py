"""What users may ask for: Spark's strings → values. Pure.

One module for each question that a query has to answer. Each has the rows of the option table
that are about it, and the class that its options are read into:

    target          which store
    subscription    which topics and queues
    offsets         from where to where
    admission       how much in a micro-batch
    splitting       how much in a task
    loss            what to do about messages that are gone
    selection       which messages
    payload         which columns, and how bodies are decoded
    progress        what consumer groups are told
    read, write     all of it, for a read and for a write

`table` puts the rows together, `given` is what the classes are read from.
"""
