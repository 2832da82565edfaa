"""The addresses at which clients reach brokers and name servers."""

from ipaddress import ip_address

from pyrocket.errors import OptionError

_MAX_PORT = 65_535
_MAX_CHARACTERS = 300


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address. Raises OptionError (ADDRESS_INVALID)."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_valid = (
        0 < len(host) <= _MAX_CHARACTERS
        and host.isprintable()
        and not set(host) & set("/\\, ")
        and (":" not in host or is_bracketed)
    )
    if is_valid and port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT:
        return host.strip("[]"), int(port)
    raise OptionError(
        f"{text[:_MAX_CHARACTERS]!r} is not an address.",
        remedy="Write host:port, such as broker.example:8081 or [::1]:8081.",
        code="ADDRESS_INVALID",
    )


def check_advertised(address: str) -> None:
    """Reject an address that other machines cannot connect to, such as 0.0.0.0:8081.

    Raises OptionError (ADDRESS_INVALID, ADVERTISE_UNSPECIFIED).
    """
    host, _ = parse_address(address)
    if is_unspecified(host):
        raise OptionError(
            f"clients cannot connect to {address}.",
            remedy="Advertise an address at which clients reach the broker: --advertise HOST:PORT.",
            code="ADVERTISE_UNSPECIFIED",
        )


def is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of a machine, as 0.0.0.0 and :: do."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
