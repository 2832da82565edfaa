"""`pyrocket broker DIR`: serve a store to other machines, list brokers, and show their state;
`pyrocket nameserver`: show clients which brokers have which topics. Their log lines are text or
JSON.
"""

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from pyrocket.broker.settings import SettingRow, load, table
from pyrocket.metadata.broker_file import BrokerFile
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.tools.cli.command_group import CommandGroup
from pyrocket.tools.cli.frame import FOUND, OK, directory, exits, exits_with_json, fail, show_json
from pyrocket.tools.cli.place import GivenPlace, place_options
from pyrocket.tools.cli.show import show_rows
from pyrocket.tools.session import Place, brokers_at, connect

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """Formats each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        made = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": made.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def write_logs(form: str, level: str) -> None:
    """Write log lines to standard error; `form` is `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


if TYPE_CHECKING:
    from pyrocket.values.source import ReplicaState, RunningState


class _BrokerCommands(CommandGroup):
    """A group that runs `start` if its first argument is a directory instead of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `start` unless the first argument is a command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_BrokerCommands)
def broker() -> None:
    """Serve a store to other machines: `pyrocket broker DIRECTORY`.

    If the directory has the name of a command, write ./NAME.
    """


def setting_options(
    names: Iterable[str], **defaults: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options for these settings; their values are passed as text.

    `defaults` replaces defaults in the help.
    """
    rows = table()

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed([*names]):
            command = _option(rows[name], defaults.get(name, rows[name].default))(command)
        return command

    return add


def _option(row: SettingRow, default: str) -> Callable[..., Any]:
    is_flag = row.name in ("insecure", "sync")
    return click.option(
        *(["-n"] if row.name == "nameserver" else []),
        row.flag,
        row.name,
        help=row.text + (f" Default: {default}." if default else ""),
        multiple=row.name in ("listen", "nameserver"),
        is_flag=is_flag,
        flag_value="true" if is_flag else None,
        metavar=None if is_flag else row.kind.name.split()[-1].upper(),
    )


def given_flags(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the options that were given."""
    return {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, (), False)
    }


@contextmanager
def _importing(command: str) -> Iterator[None]:
    """Import a server; exit with a remedy if a package is missing."""
    # By default gRPC writes several lines to standard error if it cannot bind an address.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        yield
    except ModuleNotFoundError as error:
        remedy = "Run: pip install '.[broker]' in the checkout of pyrocket."
        fail("COMMAND", f"{command} needs {error.name}.", remedy, as_json=False)


@broker.command()
@click.argument("directory", type=click.Path())
@click.option("-c", "config", metavar="FILE", help="Settings: TOML, or RocketMQ's broker.conf.")
@setting_options(table())
@exits
def start(directory: str, config: str | None, **given: Any) -> int:
    """Serve the store in DIRECTORY until SIGTERM or Ctrl-C. A missing store is created.

    Settings are also read from environment variables, whose names are PYROCKET_BROKER_ followed by
    the name of the setting.
    """
    settings = load(given_flags(given), os.environ, config)
    with _importing("broker"):
        if settings.replica_of:
            from pyrocket.server.replica.process import serve
        else:
            from pyrocket.server.process import serve
        if settings.metrics:
            importlib.import_module("pyrocket.server.monitoring")
    write_logs(settings.log_format, settings.log_level)
    return OK if serve(directory, settings) else FOUND


@broker.command("list")
@place_options
@exits_with_json
def list_brokers(place: GivenPlace, as_json: bool) -> int:
    """List the live brokers that name servers know, with their ids and addresses.

    A primary has the id 0, its replicas have other ids.
    """
    by_name = sorted(brokers_at(place.server()).items())
    rows = [(name, number, by_id[number]) for name, by_id in by_name for number in sorted(by_id)]
    if as_json:
        keys = "brokerName", "brokerId", "address"
        show_json({"brokers": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        show_rows(("broker", "id", "address"), rows)
    return OK


@broker.command()
@click.argument("directory", type=click.Path(), required=False)
@place_options
@exits_with_json
def status(directory: str | None, place: GivenPlace, as_json: bool) -> int:
    """Show the state of the broker at --endpoint, or of the broker that serves DIRECTORY.

    Exits with 1 if no broker serves the store in DIRECTORY. Nothing is changed.
    """
    where = Place(path=directory) if directory else place.target().place
    return _remote_status(where, as_json) if where.endpoint else _local_status(where.path, as_json)


def _remote_status(place: Place, as_json: bool) -> int:
    from pyrocket.remote.source import RemoteSource

    with connect(place) as session:
        assert isinstance(session.source, RemoteSource)
        state, hello = session.source.status(), session.hello
    known = {"listen": place.endpoint.split(","), "release": hello.release, "uuid": hello.store}
    _show_status({**known, "brokerName": hello.broker, **_state(state)}, as_json)
    return OK


def _local_status(directory: str, as_json: bool) -> int:
    from pyrocket.broker.broker import running_state

    layout = layout_of(directory)
    check_directory(layout, create=False)
    running, state = BrokerFile(layout).read(), running_state(layout.root)
    shown = {
        "pid": running and running.pid,
        "listen": running.listen if running else [],
        "metrics": running.metrics if running else "",
        **_state(state),
    }
    if running is None and not as_json:
        click.echo(f"No broker serves {layout.root}.")
    else:
        _show_status(shown, as_json)
    return OK if running else FOUND


def _state(state: "RunningState") -> dict[str, Any]:
    return {
        "writable": state.is_writable,
        "writeError": state.write_error,
        "diskFull": state.disk_full,
        "published": state.published,
        "flushBehindBytes": state.published - state.flushed,
        "dispatchBehindBytes": state.published - state.dispatched,
        "replicaOf": state.primary,
        "term": state.term,
        "sync": state.sync,
        "replicas": [_replica(replica) for replica in state.replicas],
    }


def _replica(state: "ReplicaState") -> dict[str, Any]:
    return {
        "name": state.name,
        "connected": state.connected,
        "durableEnd": state.end,
        "lagBytes": state.lag_bytes,
        "lagMs": state.lag_ms,
    }


def _show_status(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(shown)
        return
    replicas = shown.pop("replicas")
    for name, value in shown.items():
        click.echo(f"{name:<20} {', '.join(value) if isinstance(value, list) else value}")
    for replica in replicas:
        click.echo(f"{'replica':<20} {', '.join(f'{key} {replica[key]}' for key in replica)}")


@broker.command()
@directory
@exits
def promote(directory: str) -> int:
    """Make the replica in DIRECTORY, whose broker was stopped, a store of its own.

    The earlier primary must have ended, or must have `sync` and no other replica. Then start
    DIRECTORY without --replica-of, and the earlier primary with --replica-of.
    """
    from pyrocket.server.replica.promotion import promote

    role = promote(directory)
    click.echo(f"{directory} is no longer a replica. Its term is {role.term}.")
    return OK


_LISTEN = "127.0.0.1:9876"
_SETTINGS = (
    *("listen", "tls_certificate", "tls_key", "users", "signature_age", "insecure"),
    *("log_format", "log_level", "drain"),
)


@click.command()
@setting_options(_SETTINGS, listen=_LISTEN)
@exits
def nameserver(**given: Any) -> int:
    """Serve the routes of registered brokers until SIGTERM or Ctrl-C.

    Brokers register with --nameserver. Nothing is stored: after a restart, the brokers register
    again within seconds.
    """
    settings = load({"listen": _LISTEN, **given_flags(given)}, {})
    with _importing("nameserver"):
        from pyrocket.server.nameserver.process import serve
    write_logs(settings.log_format, settings.log_level)
    serve(settings)
    return OK
