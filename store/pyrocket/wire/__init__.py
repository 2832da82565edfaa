"""What a server and its clients share: the gRPC protocol.

proto        the .proto files, and their compiled descriptors
descriptors  the message classes, in a separate descriptor pool
messages     converts values to messages, and back
errors       converts exceptions to statuses, and back
blocks       converts slices of records to blocks, and back
channel      the names of the services, and the channel of a client: TLS, credentials
tls_errors   finds out why a connection with TLS fails

Needs the extra `endpoint`, as `server` and `remote` do; other packages import these packages only
when an endpoint is used.
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
