"""gRPC: what the broker and its clients say to each other.

proto         the interfaces, and what is compiled of them
descriptors   the classes of their messages, in a pool of our own
messages      values to messages, and back
errors        exceptions to statuses, and back
calls         every call: its name, its messages, and whether it streams
blocks        records as bytes, and back
allocator     how memory of blocks is reused
client        one connection to a broker
server        the broker behind an address

Needs the extra `endpoint`; nothing else imports this package before an endpoint is named.
"""
