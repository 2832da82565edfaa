"""What a store holds besides the messages of its topics: for whoever looks into one, or a copy.

parts       where the rows of a view are, and which columns they have
log_view    every record of the log, whatever queues say
sent_back   messages that consumers have sent back, or given up
tables      topics, one row each, and consumer groups, one row a queue
facade      `Views`: plans, and reads what is planned

Plans are made once, of places that stay what they are, and cost O(files and queues); whoever has a
plan reads the rows, perhaps elsewhere.
"""
