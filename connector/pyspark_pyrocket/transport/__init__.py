"""Transports: access to the place where messages are stored.

interface   the interface of a transport: `Target`, `MessageSource`, `MessageSink`
path        the transport for a store's directory
targets     the target for the options of a query
"""
