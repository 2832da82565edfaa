"""The options of a store that is read and written through its broker."""

import os
from dataclasses import dataclass, fields

from pyrocket import Credentials, read_credentials
from pyrocket.base.arguments import parse_addresses, parse_named_addresses
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import (
    ALL,
    READS,
    SERVERS,
    TEXT,
    Kind,
    Option,
    boolean,
    choice,
    duration,
    parsed_by,
)

PRIMARY, REPLICA, ANY = "primary", "replica", "any"

_DEFAULT_TIMEOUT_MS = 60_000
_FIRST_S = 8
"""The timeout until a server has answered once, so that a wrong address is reported soon."""

_parse_addresses = parsed_by(
    parse_addresses, "Write host:port, as in localhost:8081 or [::1]:8081; several with commas."
)
ADDRESSES: Kind[tuple[str, ...]] = Kind("host:port[,host:port]", _parse_addresses, ())
NAME_SERVERS: Kind[tuple[str, ...]] = Kind("host:port[;host:port]", _parse_addresses, ())
BROKER_ADDRESSES: Kind[tuple[tuple[str, str], ...]] = Kind(
    "name=host:port[,name=host:port]",
    parsed_by(
        lambda text: tuple(parse_named_addresses(text).items()),
        "Write broker-a=host:10911; several with commas.",
    ),
    (),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Endpoint:
    """How brokers are reached. Pickled into the tasks; each process reads the files on its own
    machine.

    addresses: the addresses of one broker, in the order in which they are tried, or those of name
        servers.
    name_servers, broker_addresses: those of a cluster of RocketMQ.
    read_from: PRIMARY, REPLICA or ANY.
    timeout_ms: the timeout of one call, including its retries.
    ca, secret_key_file: paths on each machine.
    """

    addresses: tuple[str, ...] = Option(
        "endpoint",
        ALL,
        ADDRESSES,
        "The address of a broker (`pyrocket broker`) that serves the store, instead of `path`; "
        "several addresses of the same broker are tried in order. Or the addresses of name servers "
        "(`pyrocket nameserver`): then the topics of all registered brokers are read.",
        targets=("endpoint",),
    ).field()
    name_servers: tuple[str, ...] = Option(
        "namesrv",
        ALL,
        NAME_SERVERS,
        "The addresses of the name servers of a cluster of Apache RocketMQ 4.9 or 5, instead of "
        "`path` and `endpoint`; see [CLUSTER.md](CLUSTER.md). The options `endpoint.*`, `accessKey`"
        ", `secretKey` and `secretKeyFile` apply to its servers, too.",
        targets=("namesrv",),
    ).field()
    broker_addresses: tuple[tuple[str, str], ...] = Option(
        "brokerAddresses",
        ALL,
        BROKER_ADDRESSES,
        "With `namesrv`: the addresses of brokers by name, instead of the registered ones, where "
        "these cannot be reached from here, such as those of containers.",
        targets=("namesrv",),
    ).field()
    timeout_ms: int = Option(
        "endpoint.timeout",
        ALL,
        duration(_DEFAULT_TIMEOUT_MS, "`60s`"),
        "The maximum time of one call to the broker, including retries when the broker cannot be "
        "reached; after that, the query fails. A new query fails after 8 seconds if it has never "
        "reached the broker, and at once if the broker's certificate is not trusted or only one "
        "side uses TLS.",
        targets=SERVERS,
    ).field()
    tls: bool = Option(
        "endpoint.tls",
        ALL,
        boolean(default=False),
        "Whether the connection to the broker is encrypted. The broker's certificate must be valid "
        "for the host in `endpoint`.",
        targets=SERVERS,
    ).field()
    ca: str = Option(
        "endpoint.ca",
        ALL,
        TEXT,
        "With `endpoint.tls`: a PEM file, on every machine, with the trusted CA certificates.",
        default="the system's certificates",
        targets=SERVERS,
    ).field()
    read_from: str = Option(
        "readFrom",
        READS,
        choice(PRIMARY, REPLICA, ANY),
        "With name servers: where tasks read the messages of topics. `replica`: at a replica of "
        "their broker, which is awaited for `endpoint.timeout` until it has them. `any`: at a "
        "replica that has them already, otherwise at the primary. Offsets, look-ups and views "
        "always come from the primary.",
        targets=("endpoint",),
    ).field()
    server_name: str = Option(
        "endpoint.serverName",
        ALL,
        TEXT,
        "With `endpoint.tls`: the name that the certificates of the servers must have, if it is "
        "not the host of their addresses. Brokers of RocketMQ register IP addresses.",
        default="the host of the address",
        targets=SERVERS,
    ).field()
    access_key: str = Option(
        "accessKey",
        ALL,
        TEXT,
        "The name of a user of the broker.",
        default="`$PYROCKET_ACCESS_KEY`",
        targets=SERVERS,
    ).field()
    secret_key: str = Option(
        "secretKey",
        ALL,
        TEXT,
        "The user's secret, which Spark redacts in plans. It is safer in the environment of the "
        "driver and the executors, or in a file.",
        default="`$PYROCKET_SECRET_KEY`",
        targets=SERVERS,
    ).field()
    secret_key_file: str = Option(
        "secretKeyFile",
        ALL,
        TEXT,
        "A file, on every machine, whose content is the user's secret.",
        targets=SERVERS,
    ).field()

    def __post_init__(self) -> None:
        if self.read_from != PRIMARY and not self.addresses:
            raise read_from_refused("'endpoint' is not given")

    def patience(self, *, waits: bool) -> float:
        """Return how many seconds servers are awaited that this process has never reached."""
        seconds = self.timeout_ms / 1000
        return seconds if waits else min(seconds, _FIRST_S)

    def credentials(self) -> Credentials:
        """Return the credentials, from this machine's files too. Raises OptionError."""
        return read_credentials(
            tls=self.tls,
            ca=self.ca,
            access_key=self.access_key or os.environ.get("PYROCKET_ACCESS_KEY", ""),
            secret_key=self.secret_key or os.environ.get("PYROCKET_SECRET_KEY", ""),
            secret_key_file=self.secret_key_file,
            server_name=self.server_name,
            names=("Option 'endpoint.ca'", "Option 'secretKeyFile'"),
        )

    def __repr__(self) -> str:
        """Return the options without the secret."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        shown["secret_key"] = "***" if self.secret_key else ""
        return f"Endpoint({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def read_from_refused(reason: str) -> OptionError:
    """Return the error of an option `readFrom` for which there are no replicas to choose from."""
    return OptionError(
        f"Option 'readFrom' needs name servers of pyrocket, but {reason}.",
        remedy="Use a name server as 'endpoint', or omit 'readFrom'. A replica as 'endpoint' is the"
        " only broker that is read.",
        code="OPTION_UNSUPPORTED",
    )


NO_ENDPOINT = Endpoint()
