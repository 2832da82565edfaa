"""The client of a call, from the call's metadata. Checks what its request names."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from pyrocket.base.arguments import MAX_PORT
from pyrocket.errors import TopicNotFoundError
from pyrocket.filters.message_filter import MessageFilter, check_expression
from pyrocket.formats.record import STORE_HOST, Host
from pyrocket.metadata.groups import check_group_name
from pyrocket.metadata.topics import check_topic_name
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import CallOrigin
from pyrocket.server.messaging.codes import RefusedError
from pyrocket.server.messaging.interface import name_of
from pyrocket.services.consumption import Consumption
from pyrocket.values.admin import TopicConfig

CLIENT_ID, NAMESPACE = "x-mq-client-id", "x-mq-namespace"
MAX_GROUP_CHARACTERS = 120
MAX_ID_BYTES = 255
_SYSTEM_GROUPS = "CID_RMQ_SYS_"


@dataclass(frozen=True)
class Caller:
    """The client that makes a call."""

    client_id: str
    namespace: str
    origin: CallOrigin
    host: Host
    gate: Gate

    @classmethod
    def of(cls, origin: CallOrigin, gate: Gate) -> "Caller":
        """Return the caller. Raises RefusedError (CLIENT_ID_REQUIRED)."""
        metadata = {key: value for key, value in origin.metadata if isinstance(value, str)}
        client_id = metadata.get(CLIENT_ID, "").strip()
        if not client_id:
            raise RefusedError("CLIENT_ID_REQUIRED", f"the metadata {CLIENT_ID} is missing.")
        check_id("client id", client_id)
        host = host_of_peer(origin.peer)
        return cls(client_id, metadata.get(NAMESPACE, ""), origin, host, gate)

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the client. Clients of different users are distinct."""
        return self.origin.user or "", self.client_id

    def topic(self, resource: Any) -> str:
        """Return the name of a topic with its namespace. Raises TopicNameError."""
        name = self._qualified(resource)
        check_topic_name(name)
        return name

    def group(self, resource: Any) -> str:
        """Return the name of a group. Raises GroupNameError, RefusedError."""
        name = self._qualified(resource)
        check_group_name(name)
        if len(name) > MAX_GROUP_CHARACTERS or name.startswith(_SYSTEM_GROUPS):
            raise RefusedError(
                "ILLEGAL_CONSUMER_GROUP",
                f"the group {name!r} has more than {MAX_GROUP_CHARACTERS} characters,"
                f" or begins with {_SYSTEM_GROUPS}.",
            )
        return name

    def admit(
        self, call: str, topics: Sequence[str] = (), groups: Sequence[str] = (), **more: Any
    ) -> None:
        """Check that the user may make this call. Raises StorePermissionError."""
        self.gate.admit(self.origin, call, {"topics": topics, "groups": groups, **more})

    def _qualified(self, resource: Any) -> str:
        """Return the name with the namespace from the call's metadata or from the resource."""
        namespace, name = self.namespace or resource.resource_namespace, str(resource.name)
        return f"{namespace}%{name}" if namespace and name else name


def check_id(what: str, text: str, code: str = "BAD_REQUEST") -> None:
    """Raise RefusedError for an id of more than 255 bytes."""
    if len(text.encode()) > MAX_ID_BYTES:
        raise RefusedError(code, f"the {what} has more than {MAX_ID_BYTES} bytes.")


def host_of_peer(peer: str) -> Host:
    """Return the address of a connection, such as `ipv4:127.0.0.1:50123`."""
    return parse_host(unquote(peer.partition(":")[2])) or STORE_HOST


def parse_host(text: str) -> Host | None:
    """Parse `address:port` or an address; return None for anything else, such as a host name."""
    address, _, port = text.rpartition(":")
    if text.count(":") > 1 and not text.startswith("["):
        address, port = text, ""
    if not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        address, port = text, ""
    try:
        return ip_address(address.strip("[]")).packed, int(port or 0)
    except ValueError:
        return None


def filter_of(expression: Any) -> MessageFilter:
    """Return a filter. Raises RefusedError or InvalidInputError (ILLEGAL_FILTER_EXPRESSION)."""
    kind = name_of("FilterType", expression.type)
    text = expression.expression.strip()
    check_expression(text)
    if kind == "SQL":
        if not text:
            raise RefusedError("ILLEGAL_FILTER_EXPRESSION", "the SQL expression is empty.")
        return MessageFilter.parse(sql=text)
    return MessageFilter.parse(tags=text)


def readable_topic(storage: Consumption, topic: str) -> TopicConfig:
    """Return a topic. Raises TopicNotFoundError, RefusedError (FORBIDDEN)."""
    config = storage.topic(topic)
    if config is None:
        raise no_route(topic)
    if not config.readable:
        raise RefusedError("FORBIDDEN", f"the topic {topic} is not readable.")
    return config


def no_route(topic: str) -> TopicNotFoundError:
    """Return the error for a missing topic, with the text of RocketMQ's name server."""
    return TopicNotFoundError(
        f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}"
    )
