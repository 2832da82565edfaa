"""A cluster of RocketMQ in this process: name servers, and brokers with real stores.

They speak RocketMQ's remoting protocol with Java's answers, and with faults that a test chooses.
Only the requests of `pyrocket.remoting` are served. `tests/interop` runs the same contract tests on
Java's servers; where this cluster answers differently, it is wrong.
"""

import asyncio
import selectors
import threading
from contextlib import contextmanager

from pyrocket import Store, StoreConfig

from support.rocketmq_broker import STOP_S, FakeBroker, dumps
from support.rocketmq_server import FakeServer, RefusedError

CLUSTER = "DefaultCluster"


def standard(text, request):
    """Return a route with unquoted integer keys unless the client wants standard JSON."""
    plain = request.version >= 401 or request.fields.get("acceptStandardJsonOnly") == "true"
    return text if plain else unquoted(text)


def unquoted(text):
    """Return JSON with integer keys as fastjson writes them."""
    for number in range(10):
        text = text.replace(f'"{number}":"127', f'{number}:"127')
    return text


class FakeNameServer(FakeServer):
    """A name server. What it knows is what live brokers have registered since it was started."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.known = {}
        self.static_topics = set()
        self.orders = {}

    def forget(self):
        """Forget all brokers, as a name server that was restarted."""
        self.known = {}

    def answer(self, request):
        if request.code == 105:
            return 0, None, standard(self._route(request.fields["topic"]), request).encode(), None
        if request.code == 106:
            return 0, None, unquoted(self._brokers()).encode(), None
        if request.code == 206:
            names = {topic for _, brokers in self._groups() for topic in brokers[0].topics()}
            return 0, None, dumps({"topicList": sorted(names)}).encode(), None
        if not self.cluster.is_5:
            return None
        return 3, None, b"", f" request type {request.code} not supported"

    def _groups(self):
        """Return (name, [brokers by id]) of all registered brokers."""
        brokers = sorted(self.known.values(), key=lambda broker: (broker.name, broker.broker_id))
        names = dict.fromkeys(broker.name for broker in brokers)
        return [(name, [one for one in brokers if one.name == name]) for name in names]

    def _route(self, topic):
        groups = [
            (name, brokers) for name, brokers in self._groups() if topic in brokers[0].topics()
        ]
        if not groups:
            text = "No topic route info in name server for the topic: "
            raise RefusedError(
                17, f"{text}{topic}\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ"
            )
        queues = [queue_data(name, brokers[0].topics()[topic]) for name, brokers in groups]
        found = {"brokerDatas": [broker_data(*group) for group in groups], "queueDatas": queues}
        if topic in self.static_topics:
            found["topicQueueMappingByBroker"] = {groups[0][0]: {"topic": topic, "totalQueues": 4}}
        if topic in self.orders:
            found["orderTopicConf"] = self.orders[topic]
        return dumps(found | {"filterServerTable": {}})

    def _brokers(self):
        table = {name: broker_data(name, brokers) for name, brokers in self._groups()}
        return dumps({"brokerAddrTable": table, "clusterAddrTable": {CLUSTER: [*table]}})


def broker_data(name, brokers):
    addresses = {str(one.broker_id): one.advertised for one in brokers}
    return {"brokerAddrs": addresses, "brokerName": name, "cluster": CLUSTER}


def queue_data(name, topic):
    numbers = {"readQueueNums": topic.read_queues, "writeQueueNums": topic.write_queues}
    return {"brokerName": name, "perm": topic.perm, "topicSysFlag": 0} | numbers


class RocketMQCluster:
    """Name servers and brokers in one event loop, which runs in a thread.

    Attributes:
        version: `4.9` or `5.5`; see cluster-wide differences where `is_5` is asked.
        users: The secrets of the users by access key; if empty, no signature is checked.
        flights: How many times requests were waited for, one after the other, by all clients.
    """

    def __init__(self, folder, *, version="5.5", ssl=None, binary_headers=False, users=None):
        self.folder, self.version, self.ssl = folder, version, ssl
        self.binary_headers, self.users = binary_headers, users or {}
        self.flights = self.waiting = 0
        self.name_servers, self.brokers = [], []
        # The default selector rounds the time of a delay up to whole milliseconds.
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, name="rocketmq", daemon=True)
        self._thread.start()

    @property
    def is_5(self):
        return self.version.startswith("5")

    @property
    def addresses(self):
        return [one.address for one in self.name_servers]

    def run(self, work):
        """Run a coroutine in the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    def add_name_server(self):
        server = FakeNameServer(self)
        server.start()
        self.name_servers.append(server)
        return server

    def add_broker(self, name="broker-a", **settings):
        config = StoreConfig(broker_name=name, **settings)
        store = Store.open(self.folder / name, create=True, config=config)
        broker = FakeBroker(self, name, store)
        broker.start()
        self.brokers.append(broker)
        return broker

    def add_slave(self, master, broker_id=1):
        slave = FakeBroker(self, master.name, master.store, broker_id)
        slave.start()
        self.brokers.append(slave)
        return slave

    def close(self):
        for server in (*self.name_servers, *self.brokers):
            self.run(server._kill())
        for broker in self.brokers:
            if broker.broker is not None:
                broker.broker.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()


@contextmanager
def rocketmq(folder, *, name_servers=1, brokers=("broker-a",), **settings):
    """Run a cluster, and close it at the end."""
    cluster = RocketMQCluster(folder, **settings)
    try:
        for _ in range(name_servers):
            cluster.add_name_server()
        for name in brokers:
            cluster.add_broker(name)
        yield cluster
    finally:
        cluster.close()
