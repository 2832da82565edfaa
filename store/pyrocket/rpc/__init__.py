"""gRPC: what the broker and its clients say to each other.

proto         the interfaces, and what is compiled of them
descriptors   the classes of their messages, in a pool of our own
messages      values to messages, and back
errors        exceptions to statuses, and back
service       every call: its name, its messages, and whether it streams
blocks        records as bytes, and back
upload        staged files on their way to a broker, block by block
allocator     how memory of blocks is reused
client        one connection to a broker; over it, `remote_source` reads, `remote_sink` writes and
              `remote_admin` administers
connection    the channel of a client: addresses, TLS, credentials, the first call
signature     how a call carries its user
server        the broker behind an address
gate          which call needs which right
tls           the broker's certificate
limits        bounds of bytes, and the watch over the event loop
version_feed  versions for all clients that watch
health        grpc.health.v1
monitoring    /metrics and /health
process       a broker from its start to its end

Needs the extra `endpoint`; nothing else imports this package before an endpoint is named.
"""

from importlib import import_module

try:
    for _needed in ("grpc", "google.protobuf"):
        import_module(_needed)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"a broker and its clients need {error.name}."
        " Run: pip install '.[endpoint]' in the checkout of pyrocket.",
        name=error.name,
    ) from None
