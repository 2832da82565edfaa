"""The broker serves one store to other machines. This package has plain methods; `server` serves
them over gRPC.

source          the reading side; each method takes all queues at once
sink            the writing side
append_queue    the thread that appends the records of all clients
sends           encodes and appends the messages of producers
client_calls    the calls of `pyrocket.client`'s producers and consumers
work            the kinds of work of calls
half_checks     ends transactions, and checks half messages that remain undecided
consumers       groups of push and pull consumers, which rebalance
pop             groups of pop consumers, which receive and ack messages
polls           wakes long polls, and renews the invisible time of messages automatically
trace_queue     keeps records of the message trace until they are sent
traces          writes the message trace of the broker
broker          the store with these parts and its services
settings        the settings, from flags, environment and files
java_keys       the keys of RocketMQ's broker.conf
access          users, their rights, and the age of signatures
files           configuration files that are reloaded when they change
"""
