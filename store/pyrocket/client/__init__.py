"""Producers and consumers. Nothing here uses threads, sockets or a clock.

allocation       how the members of a consumer group share the queues of a topic
consistent_hash  the ring of the allocation by consistent hash
"""
