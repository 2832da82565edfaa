"""Cores of push consumers in simulated time, over a simulated network."""

import asyncio
from random import Random

from pyrocket.client.config import ConsumerConfig
from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.client.core.consumer import ConsumerCore
from pyrocket.client.core.offsets import BrokerOffsets
from pyrocket.client.results import ConsumeResult
from pyrocket.client.transport import Member
from pyrocket.values.consuming import Subscription

from support.simulated_brokers import Network


def config(**changes):
    given = {
        "group": "billing",
        "subscriptions": {"orders": Subscription()},
        "consume_from": ConsumeFrom.FIRST,
        **changes,
    }
    return ConsumerConfig(**given)


class Listener:
    """Records the messages that it gets; `results` are returned first, then SUCCESS."""

    def __init__(self, *results, seconds=0.0):
        self.results, self.seconds = [*results], seconds
        self.got = []

    async def __call__(self, queue, messages):
        self.got.append([bytes(message.body) for message in messages])
        await asyncio.sleep(self.seconds)
        result = self.results.pop(0) if self.results else ConsumeResult.SUCCESS
        if isinstance(result, BaseException):
            raise result
        return result

    @property
    def bodies(self):
        return [body for batch in self.got for body in batch]


def consumer(
    cluster, listener, name="c1", *, offsets=None, boot_s=None, queues_changed=None, **changes
):
    """Return the core of a consumer; `offsets` is its store, by default the brokers."""
    network = Network(cluster, Random(name))
    settings = config(**changes)
    member = Member(name, f"{name}-incarnation")
    offsets = offsets or BrokerOffsets(network, settings.group, member)
    return ConsumerCore(
        settings,
        member,
        network,
        offsets,
        listener,
        now_ms=0,
        random=Random(1),
        boot_s=boot_s,
        queues_changed=queues_changed,
    )


async def kill(core):
    """Let a consumer end without a word to the brokers, as SIGKILL does."""
    core._transport.is_cut_off = True
    await core.abandon()


async def consumed(core, *, seconds=60.0):
    """Start a consumer, stop it after some time, and return the number of unfinished messages."""
    await core.start()
    await asyncio.sleep(seconds)
    return await core.stop()


def committed(orders, topic="orders"):
    found = {q.queue_id: orders.committed_of("billing", q) for q in orders.queues[topic]}
    return {number: offset for number, offset in found.items() if offset is not None}
