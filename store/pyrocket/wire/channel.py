"""The channel of a client: the names of the services, TLS, credentials, and the paths of calls."""

from dataclasses import dataclass, field
from typing import Any

import grpc

from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.signature import Metadata, sign

SERVICE, CLIENTS = "pyrocket.v1.Broker", "pyrocket.v1.Clients"
NAME_SERVER = "pyrocket.v1.NameServer"


CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    # By default the time between two attempts to connect grows to two minutes, and all calls in
    # between fail.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A channel has connections of its own: otherwise a new client would share a silent one.
    ("grpc.use_local_subchannel_pool", 1),
    # A connection that falls silent is lost after 20 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC sends no keepalive ping while it waits for the answer to a ping of its own, 60 s by
    # default.
    ("grpc.http2.ping_timeout_ms", 10_000),
]


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The user of a client, and the certificates that it trusts.

    Attributes:
        tls: Whether the connection is encrypted.
        ca: Trusted CA certificates as PEM; None for the system's certificates.
        access_key: The user; empty without credentials.
        secret_key: The user's secret; `repr` hides it.
    """

    tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    access_key: str = ""
    secret_key: str = field(default="", repr=False)

    def open(self, address: str) -> Any:
        """Return a new channel."""
        if not self.tls:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        trust = grpc.ssl_channel_credentials(root_certificates=self.ca)
        return grpc.secure_channel(address, trust, options=CHANNEL_OPTIONS)

    def metadata(self) -> Metadata:
        """Return the metadata that authenticates a call made now."""
        return sign(self.access_key, self.secret_key) if self.access_key else ()


def method_of(name: str, of: str = SERVICE) -> tuple[str, type[Any], type[Any]]:
    """Return the path of a call, and the message classes of its request and its reply."""
    found = service(of).methods_by_name[name]
    request = message_class(found.input_type.full_name)
    return f"/{of}/{name}", request, message_class(found.output_type.full_name)
