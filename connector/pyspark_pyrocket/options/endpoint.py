"""The options of a store that is read and written through its broker."""

import re
from dataclasses import dataclass

from pyspark_pyrocket.options.option import ALL, Kind, Option, duration, invalid

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s\[\]:,/]+):([0-9]{1,5})")
_DEFAULT_TIMEOUT_MS = 60_000


def _parse_addresses(option: str, text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(","))
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if not found or not 0 < int(found[2]) < 65536:
            raise invalid(
                option,
                text,
                "Write host:port, as in localhost:8081 or [::1]:8081; several with commas.",
            )
    return addresses


ADDRESSES: Kind[tuple[str, ...]] = Kind("host:port[,host:port]", _parse_addresses, ())


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """addresses: of one broker, in the order in which they are tried. timeout_ms: of one call."""

    addresses: tuple[str, ...] = Option(
        "endpoint",
        ALL,
        ADDRESSES,
        "The address of a broker (`pyrocket broker`) that serves the store, instead of `path`; "
        "several addresses of the same broker are tried in order.",
    ).field()
    timeout_ms: int = Option(
        "endpoint.timeout",
        ALL,
        duration(_DEFAULT_TIMEOUT_MS, "`60s`"),
        "How long one call of the broker may take, including its repeats when the broker cannot be "
        "reached. Then the query fails.",
    ).field()


NO_ENDPOINT = Endpoint()
