"""What users may ask for: Spark's strings → frozen values. Pure.

option          one option: its row in the READMEs' tables, and how its text is read
table           all rows, and the errors about names that are not among them
foreign         options of Kafka, of other connectors and of Spark, which are refused
json_values, timestamps, positions, ddl    values that are more than a name or a number
target          the store
topics          the topics and queues
span            where a read begins and ends
selection       filters, look-ups, or a view of the store
batching        the size of a micro-batch and of a task
payload         the columns, and how bodies are decoded and encoded
policies        lost messages, and consumer groups
creation        what is created where it is missing
delivery        when and how written rows become visible
read, write     all options of a read, and of a write
"""
