"""`lag`: how far a consumer group is behind."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING

from pyrocket.client.server import ClientTarget, server_of
from pyrocket.errors import GroupNotFoundError
from pyrocket.values.message import MessageQueue

if TYPE_CHECKING:
    from pyrocket.base.credentials import Credentials
    from pyrocket.client.transport import ClientTransport
    from pyrocket.values.admin import GroupLag

_Lags = dict[MessageQueue, "GroupLag"]


def lag(
    group: str,
    *,
    endpoint: str | None = None,
    path: str | PathLike[str] | None = None,
    credentials: "Credentials | None" = None,
    endpoint_url: str | None = None,
) -> "dict[MessageQueue, GroupLag]":
    """Return the lag of a group in each queue of its topics, at all brokers.

    The servers are named as for a `Producer`; a store at `path` is opened for reading only.

    Raises GroupNotFoundError if no broker has the group, TransportError, StoreNotFoundError.
    """
    server = server_of(endpoint, path, credentials, endpoint_url=endpoint_url)
    found = _at_brokers(server, group) if path is None else _in_store(path, group)
    return dict(sorted(found.items()))


def _in_store(path: str | PathLike[str], group: str) -> _Lags:
    from pyrocket.store import Store

    with Store.open(path, read_only=True) as store:
        name = store.groups.get(group).name
        return _by_queue(store.broker_name, store.groups.lag(name))


def _at_brokers(server: ClientTarget, group: str) -> _Lags:
    async def ask() -> _Lags:
        transport = await server.connect()
        try:
            return await _of_brokers(transport, group)
        finally:
            await transport.close()

    with ThreadPoolExecutor(1) as thread:  # The caller's thread may run an event loop.
        return thread.submit(asyncio.run, ask()).result()


async def _of_brokers(transport: "ClientTransport", group: str) -> _Lags:
    answers: list[_Lags] = []
    missing: list[GroupNotFoundError] = []
    for name in await transport.brokers():
        try:
            answers.append(_by_queue(name, await transport.lags(name, group)))
        except GroupNotFoundError as error:  # noqa: PERF203 - a call to a broker takes longer
            missing.append(error)
    if missing and not answers:
        raise missing[0]
    return {queue: one for answer in answers for queue, one in answer.items()}


def _by_queue(broker: str, lags: Sequence["GroupLag"]) -> _Lags:
    return {MessageQueue(one.topic, broker, one.queue_id): one for one in lags}
