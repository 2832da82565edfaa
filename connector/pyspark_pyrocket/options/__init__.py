"""The options of reads and writes: converts Spark's strings to frozen values. Pure.

option          one option: its row in `OPTIONS.md`, and how its text is parsed
table           all rows, and the errors about unknown names
foreign         options of Kafka, of other connectors and of Spark, which are rejected
json_values, positions, ddl    values with a syntax of their own
target          the store
topics          the topics and queues
span            the start and end of a read
selection       filters, lookups, or a view of the store
batching        the size of a micro-batch and of a task
payload         the columns, and how bodies are decoded and encoded
policies        lost messages, and consumer groups
creation        creation of missing stores and topics
delivery        when and how written rows become visible
read, write     all options of a read, and of a write
"""
