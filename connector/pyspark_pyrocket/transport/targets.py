"""Creates the target for options or for a path. A new transport is added only here."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Protocol

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions
from pyspark_pyrocket.transport.interface import MessageSource, Target
from pyspark_pyrocket.transport.path import PathTarget

StorePlace = str | os.PathLike[str] | Mapping[str, str]
"""A store's directory, or the options of a read of the store."""


class TargetOptions(Protocol):
    """What the options of reads and writes have in common."""

    @property
    def path(self) -> str:
        """The store's directory, absolute; empty with an endpoint."""

    @property
    def endpoint(self) -> Endpoint:
        """The broker or name servers; without addresses, none is used."""


def target_of(options: TargetOptions, *, waits: bool = False) -> Target:
    """Return the target for the options, as the driver opens it.

    With `waits`, it is a target that `waiting` returns. An endpoint is called, to find out whether
    it is a broker or a name server. Raises OptionError, TransportError, UnsupportedError.
    """
    if options.endpoint.name_servers:
        from pyspark_pyrocket.transport.namesrv import NamesrvBrokerTarget, NamesrvTarget

        if isinstance(options, ReadOptions):
            asked, groups = options.subscription, options.progress
            return NamesrvTarget(
                options.endpoint,
                asked.topics,
                asked.pattern,
                waits=waits,
                group=groups.commit_to or groups.group,
            )
        topics = (options.topic,) if isinstance(options, WriteOptions) else ()
        return NamesrvBrokerTarget(options.endpoint, topics=topics, waits=waits)
    if not options.endpoint.addresses:
        return PathTarget(options.path)
    try:
        from pyspark_pyrocket.transport.cluster import server_target
    except ModuleNotFoundError as error:
        raise OptionError(
            f"Option 'endpoint' needs {error.name}, which is not installed here.",
            remedy="Run on the driver and all executors: pip install '.[endpoint]' in the"
            " checkout of pyrocket.",
            code="OPTION_UNSUPPORTED",
        ) from None

    return server_target(options.endpoint, waits=waits)


def target_at(place: StorePlace) -> Target:
    """Return the target for a place given to a command or function."""
    if isinstance(place, Mapping):
        return target_of(ReadOptions.parse(Request(place, os.getcwd())))
    return PathTarget(os.path.abspath(place))


@contextmanager
def opened_source(target: Target) -> Iterator[MessageSource]:
    """Open a source for a `with` block."""
    with closing(target.open_own_source()) as source:
        yield source
