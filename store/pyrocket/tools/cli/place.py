"""Finds the store of a command: by `--path`, `--endpoint` or `--namesrv`, the environment, or a
settings file.

Options override the environment, and the environment overrides the settings file. The settings file
is TOML with the fields of `Place` as keys; `--config` or PYROCKET_CONFIG gives its path. A secret
is read from a file or from PYROCKET_SECRET_KEY. It has no option, because other users of the
machine could read it in the list of processes.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from pyrocket.base.arguments import local_path
from pyrocket.errors import OptionError, PyrocketError
from pyrocket.tools.cli.target import AdminTarget
from pyrocket.tools.session import ENVIRONMENT, Place, cluster_at, credentials_of, environment

if TYPE_CHECKING:
    from pyrocket.base.credentials import Credentials
    from pyrocket.remoting.cluster import RocketMQCluster

_KEYS = [field.name for field in fields(Place)]
_CODE = "CLI_SETTINGS"
_TARGETS = ("path", "endpoint", "namesrv")
_ON_ROCKETMQ = frozenset(
    {
        *("topic list", "topic show", "topic route", "message tail", "message show"),
        *("message find", "message send", "group list", "group show", "group lag", "offset show"),
        *("broker list", "doctor", "checkpoint show", "checkpoint reset"),
    }
)
"""The commands for a cluster of Apache RocketMQ."""


@dataclass(frozen=True)
class GivenPlace:
    """The store options of a command; environment and settings file are read by `find`."""

    options: Mapping[str, Any]
    config: str | None

    def target(self) -> AdminTarget:
        """Return the store. Raises OptionError, click.UsageError."""
        return AdminTarget(self.named())

    def named(self) -> Place:
        """Return the location of the store. Raises OptionError, click.UsageError."""
        place = self.find()
        if not place.name:
            raise click.UsageError(
                "Name a store: --path DIRECTORY (or PYROCKET_STORE), --endpoint HOST:PORT (or"
                " PYROCKET_ENDPOINT), or --namesrv HOST:PORT (or PYROCKET_NAMESRV)."
            )
        return place

    def server(self) -> Place:
        """Return the location of brokers or name servers. Raises OptionError, click.UsageError."""
        place = self.find()
        if not (place.endpoint or place.namesrv):
            raise click.UsageError(
                "Name a broker or name servers: --endpoint HOST:PORT (or PYROCKET_ENDPOINT), or"
                " --namesrv HOST:PORT (or PYROCKET_NAMESRV)."
            )
        return place

    def credentials(self) -> "Credentials":
        """Return the TLS settings and the user; see `session.credentials_of`."""
        return credentials_of(self.find())

    def cluster(self) -> "RocketMQCluster":
        """Return the cluster of Apache RocketMQ; see `session.cluster_at`."""
        return cluster_at(self.find())

    def find(self) -> Place:
        """Return the location of the store; without one, a `Place` that has no name.

        Raises OptionError, click.UsageError.
        """
        layers = [self.options, environment(), _settings(self.config)]
        known: dict[str, Any] = {}
        for layer in layers:
            if len(layer.keys() & {*_TARGETS}) > 1:
                raise click.UsageError(
                    "Name one store, either by a path, by an endpoint or by name servers."
                )
            has_store = bool(known.keys() & {*_TARGETS})
            known |= {
                name: value
                for name, value in layer.items()
                if name not in known and not (has_store and name in _TARGETS)
            }
        if "secret_key_file" in self.options:
            known.pop("secret_key", None)
        if "path" in known:
            known["path"] = local_path(known["path"])
        if "namesrv" in known:
            _refuse_without_meaning()
        if "endpoint" in known:
            # By default gRPC writes the reasons for failed connections to standard error.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return Place(**known)


def _refuse_without_meaning() -> None:
    """Raise OptionError if the command that runs has no meaning on a cluster of RocketMQ."""
    context = click.get_current_context(silent=True)
    command = context.command_path.partition(" ")[2] if context else ""
    if command and command not in _ON_ROCKETMQ:
        raise OptionError(
            f"`pyrocket {command}` does not support a cluster of Apache RocketMQ (--namesrv).",
            remedy="Use RocketMQ's `mqadmin` to administer a cluster. Commands for one:"
            f" {', '.join(sorted(_ON_ROCKETMQ))}.",
            code="OPTION_UNSUPPORTED",
        )


def _settings(file: str | None) -> Mapping[str, Any]:
    """Return the content of the settings file; empty if none is given."""
    file = file or os.environ.get("PYROCKET_CONFIG")
    if not file:
        return {}
    from pyrocket.broker.files import read_toml, refuse_if_others_can_read

    settings = read_toml(file, code=_CODE)
    for name, value in settings.items():
        if name not in _KEYS:
            near = get_close_matches(name, _KEYS, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"The keys are {', '.join(_KEYS)}."
            raise OptionError(f"{file}: unknown key {name!r}.", remedy=remedy, code=_CODE)
        if not isinstance(value, bool if name == "tls" else str):
            kind = "true or false" if name == "tls" else "text"
            raise OptionError(
                f"{file}: {name} is not {kind}.", remedy="Correct the value.", code=_CODE
            )
    if "secret_key" in settings:
        refuse_if_others_can_read(file, code=_CODE)
    return settings


_FLAGS = (
    click.option("--path", metavar="DIRECTORY", help="The store's directory, or a file: URI."),
    click.option(
        "--endpoint",
        metavar="HOST:PORT",
        help="The store's broker, or name servers, instead of --path.",
    ),
    click.option(
        "--namesrv",
        metavar="HOST:PORT[;HOST:PORT]",
        help="Name servers of a cluster of Apache RocketMQ, instead of --path.",
    ),
    click.option(
        "--broker-addresses",
        metavar="NAME=HOST:PORT",
        help="With --namesrv: brokers whose registered addresses cannot be reached from here.",
    ),
    click.option("--broker", metavar="NAME", help="One of the brokers that name servers know."),
    click.option("--tls", is_flag=True, help="Connect to the broker with TLS."),
    click.option(
        "--ca", metavar="FILE", help="PEM file with trusted CA certificates; implies TLS."
    ),
    click.option(
        "--server-name", metavar="NAME", help="The name in certificates, if it is not the host."
    ),
    click.option("--access-key", metavar="USER", help="The user at the broker."),
    click.option("--secret-key-file", metavar="FILE", help="File with the user's secret."),
    click.option("--config", metavar="FILE", help="TOML file with these settings."),
)


def _given_place(given: Mapping[str, Any], config: str | None) -> GivenPlace:
    return GivenPlace({name: given[name] for name in ENVIRONMENT if given.get(name)}, config)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a store; passed as `place`, a `GivenPlace`."""

    @functools.wraps(command)
    def run(*, config: str | None, **given: Any) -> Any:
        own = {name: value for name, value in given.items() if name not in ENVIRONMENT}
        return command(place=_given_place(given, config), **own)

    wrapped: Callable[..., Any] = run
    for option in reversed(_FLAGS):
        wrapped = option(wrapped)
    return wrapped


def _completing(
    names: Callable[[AdminTarget], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a function that completes names of the store that the command line names."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        place = _given_place(context.params, context.params.get("config"))
        try:
            return [name for name in names(place.target()) if name.startswith(incomplete)]
        except (PyrocketError, click.ClickException, OSError):
            return []  # Without a store there is nothing to complete.

    return complete


complete_topics = _completing(lambda target: [topic.name for topic in target.topics()])
complete_groups = _completing(lambda target: target.groups())
topic_argument = click.argument("topic", shell_complete=complete_topics)
group_argument = click.argument("name", metavar="GROUP", shell_complete=complete_groups)
