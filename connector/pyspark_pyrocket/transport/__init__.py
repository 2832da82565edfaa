"""Where messages are, and how they are read and written there.

interface   what the connector asks of a transport: `Target`, `MessageSource`, `MessageSink`
path        a store's directory
targets     the target that the options name
"""
