"""The settings of a broker, from flags, the environment, TOML files and RocketMQ's broker.conf.

A flag overrides the environment, and the environment overrides the file. A setting `tls_key` is the
flag `--tls-key`, the variable PYROCKET_BROKER_TLS_KEY, and the key `tls_key` of a TOML file; some
settings also have a name in RocketMQ's broker.conf. A file whose name does not end in `.toml` is
read as a broker.conf.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from ipaddress import ip_address
from typing import Any

from pyrocket.base.arguments import MAX_PORT, parse_size
from pyrocket.base.config import MAX_BODY_BYTES, Retention, StoreConfig, parse_duration, parse_hours
from pyrocket.base.credentials import Credentials
from pyrocket.broker.files import read_file, read_toml, refuse_if_others_can_read
from pyrocket.broker.java_keys import JAVA_KEYS
from pyrocket.errors import OptionError, TopicNameError
from pyrocket.formats.system_topics import TRACE_TOPIC
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.transactions import CheckPolicy

CODE = "BROKER_SETTING"
PLAIN = "plain://"
ENVIRONMENT = "PYROCKET_BROKER_"

_OF_SERVICE = re.compile(r"\w+_(SERVICE_(HOST|PORT\w*)=.*|PORT_\d+_\w+=.*|PORT=\w+://.*)")
"""What Kubernetes adds to the environment of containers for a service, here `pyrocket-broker`."""


@dataclass(frozen=True)
class SettingKind:
    """The type of a setting: its description, and a parser that raises ValueError."""

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _flag(text: str) -> bool:
    return {"true": True, "false": False, "1": True, "0": False}[text.lower()]


def _seconds(text: str) -> float:
    duration_ms = 0 if text == "0" else parse_duration(text)
    if duration_ms is None:
        raise ValueError
    return duration_ms / 1000


def _size(text: str, most: float = math.inf) -> int:
    size = parse_size(text)
    if not size or size > most:
        raise ValueError
    return size


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for word in text.replace(";", ",").split(",") if (part := word.strip()))


def _listens(text: str) -> tuple[str, ...]:
    addresses = _list(text)
    for address in addresses:
        host, _, port = address.removeprefix(PLAIN).rpartition(":")
        if not host or not 0 <= int(port) <= MAX_PORT:
            raise ValueError
    if not addresses:
        raise ValueError
    return addresses


def _one_of(*choices: str) -> SettingKind:
    return SettingKind(" or ".join(choices), {choice: choice for choice in choices}.__getitem__)


def _topic(text: str) -> str:
    try:
        check_topic_name(text)
    except TopicNameError:
        raise ValueError from None
    return text


def _show_seconds(value: float) -> str:
    units = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
    unit = next((name for name, size in units.items() if value and value % size == 0), "s")
    return f"{value / units[unit]:g}{unit}"


def _show_size(value: int) -> str:
    power = next(power for power in (3, 2, 1, 0) if value % 1024**power == 0)
    return f"{value // 1024**power}{' kmg'[power].strip()}"


TEXT = SettingKind("text", str)
NUMBER = SettingKind("a whole number of at least 1", _whole)
HOURS = SettingKind("a number of hours", float, lambda value: "" if value is None else f"{value:g}")
FLAG = SettingKind(
    "true or false", _flag, lambda value: "" if value is None else str(value).lower()
)
DURATION = SettingKind("a duration such as 30s or 5m", _seconds, _show_seconds)
SIZE = SettingKind("a size such as 4m", _size, _show_size)
MESSAGE_SIZE = SettingKind("a size up to 4m", partial(_size, most=MAX_BODY_BYTES), _show_size)
TOPIC = SettingKind("the name of a topic that clients may send to", _topic)
LIST = SettingKind("a comma-separated list", _list, ", ".join)
LISTENS = SettingKind("host:port, or several such addresses", _listens, ", ".join)
HOURS_OF_DAY = SettingKind(
    "hours of the day such as 4 or 4,16", parse_hours, lambda value: ",".join(map(str, value))
)


def _setting(
    default: Any,
    kind: SettingKind,
    text: str,
    java: str = "",
    translate: Callable[[str], str] = str,
) -> Any:
    about = {"kind": kind, "text": text, "java": java, "translate": translate}
    return field(default=default, metadata={"default": kind.show(default), **about})


def _words(java: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that translates RocketMQ's words, and keeps others."""
    return lambda text: java.get(text, text)


_MS = "{}ms".format


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one broker."""

    listen: tuple[str, ...] = _setting(
        ("127.0.0.1:8081",),
        LISTENS,
        "Addresses for clients. With a certificate, all but `plain://HOST:PORT` use TLS.",
        "listenPort",
        "127.0.0.1:{}".format,
    )
    wait: float = _setting(
        0.0, DURATION, "How long to wait for a store that another process writes to."
    )
    tls_certificate: str = _setting("", TEXT, "PEM file with the certificate and its chain.")
    tls_key: str = _setting("", TEXT, "PEM file with the private key of the certificate.")
    users: str = _setting("", TEXT, "TOML file with the users, their secrets and their rights.")
    signature_age: float = _setting(
        900.0,
        DURATION,
        "Maximum difference between the date that a client signs and the broker's clock. With 0,"
        " signatures are valid for ever.",
    )
    insecure: bool = _setting(
        False,
        FLAG,
        "Allow addresses other than loopback without users or without TLS, and for `metrics`.",
    )
    nameserver: tuple[str, ...] = _setting(
        (), LIST, "Addresses of the name servers with which the broker registers.", "namesrvAddr"
    )
    advertise: str = _setting(
        "", TEXT, "Address at which clients reach the broker. The default is the first of `listen`."
    )
    cluster_name: str = _setting(
        "DefaultCluster",
        TEXT,
        "Name of the broker's cluster, at name servers and in metrics.",
        "brokerClusterName",
    )
    nameserver_ca: str = _setting(
        "", TEXT, "PEM file with the CA certificates of name servers; implies TLS."
    )
    nameserver_access_key: str = _setting("", TEXT, "The broker's user at name servers.")
    nameserver_secret_key_file: str = _setting("", TEXT, "File with the secret of that user.")
    replica_of: str = _setting(
        "",
        TEXT,
        "Address of the broker whose store is copied, as host:port; only reads are served.",
    )
    sync: bool = _setting(
        False,
        FLAG,
        "Whether sends are acknowledged after a replica has the messages durably.",
        "brokerRole",
        _words({"ASYNC_MASTER": "false", "SYNC_MASTER": "true"}),
    )
    sync_timeout: float = _setting(
        2.0, DURATION, "How long a send waits for a replica. Clients wait 3 s for a reply.",
        "slaveTimeout", _MS,
    )  # fmt: skip
    replica_ca: str = _setting(
        "", TEXT, "PEM file with the CA certificates of that broker; implies TLS."
    )
    replica_access_key: str = _setting(
        "", TEXT, "The replica's user at that broker, with the right `admin` on the store."
    )
    replica_secret_key_file: str = _setting("", TEXT, "File with the secret of that user.")
    metrics: str = _setting("", TEXT, "Address of /metrics and /health, such as 127.0.0.1:5557.")
    log_format: str = _setting("text", _one_of("text", "json"), "Format of log lines.")
    log_level: str = _setting(
        "info", _one_of("debug", "info", "warning", "error"), "Lowest level that is logged."
    )
    broker_name: str = _setting(
        "broker-a", TEXT, "Name of the broker; used when the store is created.", "brokerName"
    )
    flush: str = _setting(
        "async",
        _one_of("async", "sync"),
        "Whether appends are acknowledged before (async) or after (sync) the flush.",
        "flushDiskType",
        _words({"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}),
    )
    flush_timeout: float = _setting(
        5.0, DURATION, "How long an append waits for its flush.", "syncFlushTimeout", _MS
    )
    log_file_bytes: int = _setting(
        1 << 30,
        SIZE,
        "Size of each CommitLog file; used when the store is created.",
        "mappedFileSizeCommitLog",
    )
    auto_create_topics: bool = _setting(
        True, FLAG, "Whether a send creates a missing topic.", "autoCreateTopicEnable"
    )
    default_queues: int = _setting(
        4, NUMBER, "Number of queues of an automatically created topic.", "defaultTopicQueueNums"
    )
    delay_levels: str = _setting(
        "", TEXT, "Delays of the delay levels; used when the store is created.", "messageDelayLevel"
    )
    retention_hours: float | None = _setting(
        None, HOURS, "How long messages are kept. The default is the store's configuration.",
        "fileReservedTime",
    )  # fmt: skip
    clean_time: tuple[int, ...] = _setting(
        (4,),
        HOURS_OF_DAY,
        "With `retention_hours`: hours of the day at which expired files are deleted.",
        "deleteWhen",
    )
    max_message_bytes: int = _setting(
        MAX_BODY_BYTES, MESSAGE_SIZE, "Maximum size of a message body.", "maxMessageSize"
    )
    timer_max_delay: float = _setting(
        40 * 86_400.0, DURATION, "Maximum delay of a message with a delivery time.",
        "timerMaxDelaySec", "{}s".format,
    )  # fmt: skip
    request_bytes: int = _setting(16 << 20, SIZE, "Maximum size of a request.")
    connection_bytes: int = _setting(
        64 << 20, SIZE, "Maximum memory for the requests of one connection, and for its replies."
    )
    total_bytes: int = _setting(
        512 << 20, SIZE, "Maximum memory for the requests and replies of all connections."
    )
    staging_percent: int = _setting(
        10, NUMBER, "Percentage of the disk for rows that are staged but not published."
    )
    streams_per_client: int = _setting(2_000, NUMBER, "Maximum concurrent calls of one connection.")
    parked_polls: int = _setting(
        10_000, NUMBER, "Maximum number of waiting calls. Twice as many calls may be open."
    )
    read_threads: int = _setting(8, NUMBER, "Number of threads that answer reads.")
    stream_stalled: float = _setting(
        60.0, DURATION, "Time without progress after which a stream is cancelled."
    )
    auto_create_groups: bool | None = _setting(
        None,
        FLAG,
        "Whether a receive, heartbeat or commit creates a missing group. The default is true if"
        " only this machine can reach `listen`.",
        "autoCreateSubscriptionGroup",
    )
    long_poll: float = _setting(
        30.0, DURATION, "Maximum time that a receive or pull waits for messages."
    )
    transaction_timeout: float = _setting(
        6.0, DURATION, "Age at which a half message is checked for the first time.",
        "transactionTimeOut", _MS,
    )  # fmt: skip
    transaction_check_interval: float = _setting(
        30.0,
        DURATION,
        "Time between two checks of a half message.",
        "transactionCheckInterval",
        _MS,
    )
    transaction_check_max: int = _setting(
        15,
        NUMBER,
        "Number of checks after which a half message is discarded.",
        "transactionCheckMax",
    )
    trace: bool = _setting(
        False, FLAG, "Whether sends, receives and acks are written to the message trace.",
        "traceTopicEnable",
    )  # fmt: skip
    trace_topic: str = _setting(
        TRACE_TOPIC, TOPIC, "Topic of the message trace.", "msgTraceTopicName"
    )
    connection_idle: float = _setting(
        1800.0, DURATION, "Time without a call after which a connection is closed."
    )
    drain: float = _setting(30.0, DURATION, "Time that calls have to complete on shutdown.")
    ignored: tuple[str, ...] = ()
    """The keys of a broker.conf that have no effect. Not a setting."""

    @property
    def creates_groups(self) -> bool:
        """Whether a receive, heartbeat or commit creates a missing group."""
        if self.auto_create_groups is None:
            return all(map(is_loopback, self.listen))
        return self.auto_create_groups

    @property
    def replica_timeout(self) -> float:
        """How long a send waits for a replica, in seconds; 0 if it does not."""
        return max(self.sync_timeout, 0.001) if self.sync else 0

    def credentials(self, server: str) -> Credentials:
        """Return the credentials at other servers, by the prefix of their settings.

        Raises OptionError (BROKER_SETTING).
        """
        ca, access_key, file = (
            getattr(self, f"{server}_{name}") for name in ("ca", "access_key", "secret_key_file")
        )
        if file:
            refuse_if_others_can_read(file, code=CODE)
        return Credentials(
            tls=bool(ca),
            ca=read_file(ca, code=CODE) if ca else None,
            access_key=access_key,
            secret_key=read_file(file, code=CODE).decode().strip() if file else "",
        )

    def check_policy(self) -> CheckPolicy:
        """Return the policy for checking half messages."""
        return CheckPolicy(
            timeout_ms=int(1000 * self.transaction_timeout),
            interval_ms=int(1000 * self.transaction_check_interval),
            max_checks=self.transaction_check_max,
        )

    def store_config(self) -> StoreConfig:
        """Return the configuration with which the broker opens its store."""
        retention = None
        if self.retention_hours is not None:
            retention = Retention(hours=self.retention_hours, at_hours=self.clean_time)
        return StoreConfig(
            broker_name=self.broker_name,
            flush=self.flush,
            flush_timeout_ms=int(1000 * self.flush_timeout),
            log_file_bytes=self.log_file_bytes,
            auto_create_topics=self.auto_create_topics,
            default_queues=self.default_queues,
            delay_levels=self.delay_levels or None,
            retention=retention,
            max_message_bytes=self.max_message_bytes,
            timer_max_delay_ms=int(1000 * self.timer_max_delay),
            exclusive=True,
        )


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address such as plain://127.0.0.1:8081."""
    host = address.removeprefix(PLAIN).rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class SettingRow:
    """A setting as a row of the table."""

    name: str
    default: str
    kind: SettingKind
    text: str
    java: str
    translate: Callable[[str], str]

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return ENVIRONMENT + self.name.upper()

    def parse(self, text: str, source: str) -> Any:
        """Return the value parsed from `text`. Raises OptionError, which names the source."""
        try:
            return self.kind.parse(text)
        except (KeyError, ValueError):
            raise OptionError(
                f"{source} is {text!r}.", remedy=f"Use {self.kind.name}.", code=CODE
            ) from None


def table() -> dict[str, SettingRow]:
    """Return every setting by name, in the order of the documentation."""
    return {
        setting.name: SettingRow(setting.name, **setting.metadata)
        for setting in fields(Settings)
        if setting.metadata
    }


def load(
    flags: Mapping[str, str], environment: Mapping[str, str], path: str | None = None
) -> Settings:
    """Return the settings; the keys of `flags` are names of settings.

    Raises OptionError (BROKER_SETTING), which suggests the nearest setting.
    """
    rows = table()
    values = {} if path is None else _from_file(rows, path)
    by_variable = {row.variable: row for row in rows.values()}
    for variable, text in environment.items():
        of_service = _OF_SERVICE.fullmatch(f"{variable}={text}")
        if variable.startswith(ENVIRONMENT) and not of_service:
            row = _known(by_variable, variable, "the environment")
            values[row.name] = row.parse(text, variable)
    for name, text in flags.items():
        values[name] = rows[name].parse(text, rows[name].flag)
    return Settings(**values)


def _from_file(rows: Mapping[str, SettingRow], path: str) -> dict[str, Any]:
    if not path.endswith(".toml"):
        return _from_java(rows, path)
    values = {}
    for name, value in read_toml(path, code=CODE).items():
        row = _known(rows, name, path)
        values[name] = row.parse(_as_text(value), f"{name} in {path}")
    return values


def _from_java(rows: Mapping[str, SettingRow], path: str) -> dict[str, Any]:
    by_key = {row.java: row for row in rows.values() if row.java}
    values: dict[str, Any] = {}
    ignored = []
    for line in read_file(path, code=CODE).decode(errors="replace").splitlines():
        key, equals, text = (part.strip() for part in line.partition("="))
        if not key or key.startswith(("#", "!")):
            continue
        if key in JAVA_KEYS - by_key.keys():
            ignored.append(key)
            continue
        row = _known(by_key, key, path, JAVA_KEYS)
        if not equals:
            raise OptionError(
                f"{key} in {path} has no value.", remedy="Write `KEY=VALUE`.", code=CODE
            )
        values[row.name] = row.parse(row.translate(text), f"{key} in {path}")
    return {**values, "ignored": tuple(ignored)}


def _known(
    rows: Mapping[str, SettingRow], name: str, place: str, others: Collection[str] = ()
) -> SettingRow:
    if name not in rows:
        remedy = nearest(name, rows, others)
        raise OptionError(f"{place} has the unknown setting {name}.", remedy=remedy, code=CODE)
    return rows[name]


def nearest(name: str, names: Iterable[str], others: Collection[str] = ()) -> str:
    """Return a suggestion for an unknown name: the nearest of both, or all `names`."""
    near = get_close_matches(name, [*names, *others], n=1)
    return f"Did you mean {near[0]}?" if near else f"The names are {', '.join(sorted(names))}."


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
