"""The channel of a client: the names of the services, its settings, and the paths of calls."""

from typing import Any

import grpc

from pyrocket.base.credentials import Credentials
from pyrocket.wire.descriptors import message_class, service

SERVICE, CLIENTS = "pyrocket.v1.Broker", "pyrocket.v1.Clients"
NAME_SERVER = "pyrocket.v1.NameServer"

ONCE = frozenset({"Append", "SendMessages", "SendHalf", "SendBack"})
"""Calls that store messages again if they are repeated, for example after a lost reply."""

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


def open_channel(credentials: Credentials, address: str, of: Any = grpc) -> Any:
    """Return a new channel; `of` is `grpc.aio` for one of the current event loop."""
    if not credentials.tls:
        return of.insecure_channel(address, options=CHANNEL_OPTIONS)
    trust = grpc.ssl_channel_credentials(root_certificates=credentials.ca)
    options: list[tuple[str, int | str]] = [*CHANNEL_OPTIONS]
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    return of.secure_channel(address, trust, options=options)


def method_of(name: str, of: str = SERVICE) -> tuple[str, type[Any], type[Any]]:
    """Return the path of a call, and the message classes of its request and its reply."""
    method = service(of).methods_by_name[name]
    request = message_class(method.input_type.full_name)
    return f"/{of}/{name}", request, message_class(method.output_type.full_name)
