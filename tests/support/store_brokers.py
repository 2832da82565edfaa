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
from support.simulated_brokers import Broker, Observer, notify_watchers, now_ms
from support.stores import SMALL

_DELIVER_S = 5


class _Messages(dict):
    """Queue → its messages, read when they are asked for."""

    def __init__(self, stores):
        super().__init__()
        self._stores = stores

    def items(self):
        places = [
            MessageQueue(topic, name, number)
            for name, store in self._stores.items()
            for topic, config in store.topics.all().items()
            for number in range(config.read_queues)
        ]
        return [(place, self[place]) for place in places]

    def __missing__(self, queue):
        self[queue] = [*self._stores[queue.broker].messages(queue.topic, queue.queue_id)]
        return self[queue]


class StoreBrokers:
    """A cluster of brokers, each with a store in `folder`, for one simulated loop."""

    def __init__(self, folder, names, topics):
        self.brokers = {name: Broker(name) for name in names}
        self.watchers, self.sent_back = [], []
        self.observer, self.loop = Observer(), None
        self.has_routes = True
        self._stores, self._consumers, self._answers = {}, {}, {}
        for name in names:
            config = replace(SMALL, broker_name=name, log_file_bytes=4 << 20)
            store = Store.open(
                folder / name, create=True, config=config, clock=self.brokers[name].now_ms
            )
            self._stores[name] = store
            for topic, count in topics.items():
                store.topics.create(topic, read_queues=count, write_queues=count)
            self.restart(name)
        self._delivering = None

    async def _deliver(self):
        while True:
            await asyncio.sleep(_DELIVER_S)
            for name, store in self._stores.items():
                store.deliver_due()
                self.brokers[name].wake()

    def close(self):
        for store in self._stores.values():
            store.close()

    def restart(self, name):
        consumers = Consumers(self._stores[name], at_once(self._stores[name]), ages=now_ms)
        consumers.members.watch(lambda group: notify_watchers(self.watchers, group))
        answers = {"Topics": list}
        sync = SimpleNamespace(holding=lambda work: work)  # Nothing waits for a replica.
        broker = SimpleNamespace(consumers=consumers, confirmations=sync)
        for found in ClientCalls(broker).table().values():
            answers |= found
        answers["SendBack"] = lambda **asked: consumers.send_back(**asked).result()
        self._consumers[name], self._answers[name] = consumers, answers
        self.observer.restarted(name)

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
            for name, store in self._stores.items()
            if topic in store.topics.all()
            for number in range(store.topics.get(topic).write_queues)
        ]

    @property
    def messages(self):
        return _Messages(self._stores)

    @property
    def dead_letters(self):
        return [
            message
            for store in self._stores.values()
            for topic in store.topics.all()
            if topic.startswith("%DLQ%")
            for message in store.messages(topic)
        ]

    def append(self, queue, body):
        message = Message(topic=queue.topic, body=body, queue_id=queue.queue_id)
        store, broker = self._stores[queue.broker], self.brokers[queue.broker]
        store.append(message)
        broker.last_store_ms = max(broker.last_store_ms, store.now())
        broker.wake()

    def range(self, queue):
        return self._stores[queue.broker].queue_range(queue.topic, queue.queue_id)

    def close_queue(self, topic, broker):
        topics = self._stores[broker].topics
        number = topics.get(topic).write_queues - 1
        if not number:
            return None
        topics.update(topic, write_queues=number)
        return MessageQueue(topic, broker, number)

    def create_topic(self, topic, queues):
        for store in self._stores.values():
            store.topics.create(topic, read_queues=queues, write_queues=queues)

    def delete_topic(self, topic):
        for store in self._stores.values():
            if topic in store.topics.all():
                store.topics.delete(topic)

    def remove_queue(self, queue):
        self._stores[queue.broker].topics.update(queue.topic, read_queues=queue.queue_id)

    def add_queue(self, topic, broker):
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

    def pull(self, request):
        return pulled(self._consumers[request.queue.broker].pulls.pull(request))

    def committed_of(self, group, queue):
        return self._consumers[queue.broker].committed(group, queue)
