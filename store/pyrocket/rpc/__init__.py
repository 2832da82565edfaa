"""The gRPC protocol between the broker and its clients.

proto          the .proto files, and their compiled descriptors
descriptors    the message classes, in a separate descriptor pool
messages       converts values to messages, and back
errors         converts exceptions to statuses, and back
service        the calls of `pyrocket.v1.Broker`: messages, streaming, implementation
blocks         converts slices of records to blocks, and back
upload         uploads staged files to a broker, block by block
allocator      configures glibc's allocator to reuse the memory of blocks
client         calls a broker, for `remote_source`, which reads, `remote_sink`, which writes, and
               `remote_admin`, which administers
connection     the channel of a client: addresses, TLS, credentials, the first call
signature      the credentials of a call, with RocketMQ's signature
origin         who makes a call, read before threads work on it
call_server    threads, rights, limits and errors of calls, for every server
server         serves a broker at an address
threads        the threads that do the work of calls
gate           checks the rights that each call needs
tls            the broker's certificate
limits         limits memory, and detects callbacks that block the event loop
version_feed   sends versions of the store to all watching clients
version_watch  follows these versions in a client
health         grpc.health.v1
monitoring     /metrics and /health
process        the broker process, from start to shutdown
clients        the calls of `pyrocket.client`'s producers and consumers
messaging      RocketMQ's own protocol, for its clients
nameserver     the name server: its calls, and its process

Needs the extra `endpoint`; other packages import this package only when an endpoint is used.
"""

from importlib import import_module

from pyrocket.errors import PackageMissingError

try:
    for _needed in ("grpc", "google.protobuf"):
        import_module(_needed)
except ModuleNotFoundError as error:
    raise PackageMissingError(
        f"a broker and its clients need {error.name}, which is not installed.",
        remedy="Run: pip install '.[endpoint]' in the checkout of pyrocket.",
        name=error.name,
    ) from None
