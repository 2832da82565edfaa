"""What users may ask for: Spark's strings → frozen values. Pure.

option          one option: its row in the READMEs' tables, and how its text is read
table           all rows, and the errors about names that are not among them
foreign         what is known of options of Kafka, of other connectors and of Spark
json_values, timestamps, positions, ddl    values that are more than a word or a number
target          which store
topics          which topics and queues
span            from where to where
selection       which messages, or which view of the store
batching        how much in a micro-batch and in a task
payload         which columns, and how bodies are decoded and encoded
policies        what a read does about lost messages, and for consumer groups
creation        what is created where it is missing
delivery        when and how written rows appear
read, write     all of it, for a read and for a write
"""
