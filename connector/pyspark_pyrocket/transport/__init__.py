"""Transports: access to the place where messages are stored.

interface   the interface of a transport: `Target`, `MessageSource`, `MessageSink`
path        the transport for a store's directory
endpoint    the transport for one broker
cluster     the transport for the brokers of name servers
targets     the target for the options of a query

`cluster_source` merges the sources of several brokers into one.
"""
