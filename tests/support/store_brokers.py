"""Brokers of the shipped library, over stores on disk, for `simulated_brokers.Network`."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

from pyrocket import Message, Store
from pyrocket.broker.client_calls import ClientCalls
from pyrocket.broker.consumers.consumers import Consumers
from pyrocket.client.transport import pulled
from pyrocket.values.message import MessageQueue

from support.pops import at_once
from support.simulated_brokers import Broker, Observer, now_ms
from support.stores import BY_HAND, log_files, overwrite, reboot

_DELIVER_S = 5


class Brokers:
    """A cluster of brokers, each with a store in `folder`.

    Attributes:
        loop: The event loop of the brokers; None for that of the client.
    """

    def __init__(self, folder, names, topics):
        self._folder, self.brokers = folder, {}
        self.watchers, self.sent_back = [], []
        self.observer, self.loop = Observer(), None
        self.has_routes = True
        self._stores, self._consumers, self._answers = {}, {}, {}
        self._delivering = None
        for name in names:
            self.add_broker(name, topics)

    def add_broker(self, name, topics):
        self.brokers[name] = Broker(name)
        self._open(name)
        for topic, count in topics.items():
            self._stores[name].topics.create(topic, read_queues=count, write_queues=count)

    def _open(self, name):
        config = replace(BY_HAND, broker_name=name, log_file_bytes=4 << 20)
        clock = self.brokers[name].now_ms
        self._stores[name] = Store.open(
            self._folder / name, create=True, config=config, clock=clock
        )
        self.restart(name)

    async def _deliver(self):
        while True:
            await asyncio.sleep(_DELIVER_S)
            for name, store in self._stores.items():
                if store.deliver_due():
                    self.brokers[name].wake()

    def close(self):
        for store in self._stores.values():
            store.close()

    def restart(self, name):
        """Lose the members; locks are kept, as if they had been renewed."""
        consumers = Consumers(self._stores[name], at_once(self._stores[name]), ages=now_ms)
        consumers.members.watch(self._notify)
        answers = {"Topics": list}
        sync = SimpleNamespace(holding=lambda work: work)  # Nothing waits for a replica.
        broker = SimpleNamespace(consumers=consumers, confirmations=sync)
        for found in ClientCalls(broker).table().values():
            answers |= found
        answers["SendBack"] = lambda **asked: consumers.send_back(**asked).result()
        self._consumers[name], self._answers[name] = consumers, answers
        self.observer.restarted(name)

    def _notify(self, group):
        """Send a notification to those clients that watch a group."""
        for watched, client, received in self.watchers:
            if watched == group:
                asyncio.get_running_loop().call_later(
                    client.delay(), client.loop.call_soon, received, None
                )

    def truncate(self, queue, end):
        """Lose the messages of a broker from one on, as in a crash of its machine."""
        store = self._stores[queue.broker]
        (first,) = store.read(queue.topic, queue.queue_id, end, 1)
        store.close(clean=False)
        reboot(store.path)
        (file,) = log_files(store.path)
        overwrite(file, b"\1" * 200, first.physical_offset - int(file.name))
        self._open(queue.broker)

    @property
    def queues(self):
        """Topic → its queues at all brokers."""
        found = {}
        for name, store in self._stores.items():
            for topic, config in store.topics.all().items():
                found.setdefault(topic, []).extend(
                    MessageQueue(topic, name, number) for number in range(config.read_queues)
                )
        return found

    def writable(self, topic):
        return [
            MessageQueue(topic, name, number)
            for name, config in self.topics(topic).items()
            for number in range(config.write_queues)
        ]

    @property
    def dead_letters(self):
        return [
            message
            for store in self._stores.values()
            for topic in store.topics.all()
            if topic.startswith("%DLQ%")
            for message in store.messages(topic)
        ]

    def append(self, queue, body, **more):
        message = Message(topic=queue.topic, body=body, queue_id=queue.queue_id, **more)
        store, broker = self._stores[queue.broker], self.brokers[queue.broker]
        store.append(message)
        broker.last_store_ms = max(broker.last_store_ms, store.now())
        broker.wake()

    def range(self, queue):
        return self._stores[queue.broker].queue_range(queue.topic, queue.queue_id)

    def close_queue(self, topic, broker):
        """Make a broker's last queue read-only and return it; None if it has no other queue."""
        topics = self._stores[broker].topics
        number = topics.get(topic).write_queues - 1
        if not number:
            return None
        topics.update(topic, write_queues=number)
        return MessageQueue(topic, broker, number)

    def create_topic(self, topic, queues):
        """Create a topic with this number of queues at every broker."""
        for store in self._stores.values():
            store.topics.create(topic, read_queues=queues, write_queues=queues)

    def delete_topic(self, topic):
        for name in self.topics(topic):
            self._stores[name].topics.delete(topic)

    def remove_queue(self, queue):
        self._stores[queue.broker].topics.update(queue.topic, read_queues=queue.queue_id)

    def add_queue(self, topic, broker):
        """Add a queue, or make the queues that are being removed writable again."""
        topics = self._stores[broker].topics
        known = topics.get(topic)
        count = known.read_queues + (known.read_queues == known.write_queues)
        topics.update(topic, read_queues=count, write_queues=count)

    def topics(self, topic):
        """Return the settings of a topic by broker."""
        known = {name: store.topics.all().get(topic) for name, store in self._stores.items()}
        return {name: config for name, config in known.items() if config is not None}

    def answers(self, broker):
        """Call → the function that answers it at a broker."""
        if self._delivering is None:
            self._delivering = asyncio.ensure_future(self._deliver())
        return self._answers[broker]

    def members(self, broker, group):
        return self._answers[broker]["GroupMembers"](group)

    def starts(self, broker, group):
        return self._consumers[broker].group_starts(group).starts

    def reset(self, group, queue, offset):
        """Move a group, although it has members."""
        self._consumers[queue.broker].reset(
            group, queue.topic, {queue.queue_id: offset}, force=True
        )

    def pull(self, request):
        return pulled(self._consumers[request.queue.broker].pulls.pull(request))

    def committed_of(self, group, queue):
        return self._consumers[queue.broker].committed(group, queue)
