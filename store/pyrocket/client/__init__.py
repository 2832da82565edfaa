"""Producers and consumers.

transport        the calls to brokers that producers and consumers make
instance         the event loop and connections that the clients of a process share
embedded         the calls to a store in the same process
core             the state of a client in one event loop, without threads, sockets or clock
allocation       how the members of a consumer group share the queues of a topic
consistent_hash  the ring of the allocation by consistent hash
server           brokers at an endpoint, or a store at a path
producer         sends messages
producer_config  the settings of a producer
outgoing         the messages of a producer: checks, compression, batches
pending_sends    counts the sends that are not finished
local_transactions  executes transactions, and answers checks
send_hooks       functions that are called before and after each send
selection        which queue a message is sent to
fault_table      which brokers a producer avoids because they were slow or failed
least_latency    chooses the queue with the least latency of sends
consumer_config  the settings of a consumer, and their bounds
consume_from     at which offset a consumer starts, and how it continues after an invalid one
results          what a listener returns for a batch of messages
deduplication    wraps a listener so that each key is consumed once
"""
