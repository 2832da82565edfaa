"""The addresses of servers, and servers that do not speak RocketMQ's remoting protocol."""

from pyrocket.errors import OptionError, UnsupportedError


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT. Raises OptionError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 1 << 16:
        raise OptionError(f"{address!r} is not the address of a server.", remedy="Use HOST:PORT.")
    return host.strip("[]"), int(port)


def wrong_server(first: bytes, place: str) -> UnsupportedError | None:
    """Return the error for a server of another protocol, by its first bytes; None if unknown."""
    known = _protocol(first)
    if known is None:
        return None
    name, remedy = known
    return UnsupportedError(
        f"{place} is no RocketMQ server of this protocol: {name}.",
        remedy=remedy,
        code="PROTOCOL_UNKNOWN",
    )


def _protocol(first: bytes) -> tuple[str, str] | None:
    if first.startswith(b"HTTP"):
        return "it speaks HTTP", "Use the port of a name server, usually 9876."
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it uses TLS, and the client does not", "Set TLS for this address."
    if first[3:9] == b"\x04\0\0\0\0\0":  # An HTTP/2 frame with SETTINGS.
        remedy = (
            "For a broker or a name server of pyrocket use `endpoint`; a proxy is not supported."
        )
        return "it speaks gRPC", remedy
    return None
