"""The broker serves one store to other machines. This package has plain methods; `rpc` serves them
over gRPC.

interface       the calls of a source of messages, here and over a network
source          the reading side; each method takes all queues at once
sink            the writing side
append_queue    the thread that appends the records of all clients
sends           encodes and appends the messages of producers
producer_calls  the calls of `pyrocket.client`'s producers
half_checks     ends transactions, and checks half messages that remain undecided
consumers       groups of push and pull consumers, which rebalance
pop             groups of pop consumers, which receive and ack messages
polls           wakes long polls when messages arrive or become visible
renewals        renews the invisible time of messages automatically
traces          writes the message trace
rounds          the periodic work of a thread
broker          the store with these parts and its services
settings        the settings, from flags, environment and files
java_keys       the keys of RocketMQ's broker.conf
access          users and their rights
files           configuration files that are reloaded when they change
running         the broker's state: offsets of the log, write errors, a full disk
"""
