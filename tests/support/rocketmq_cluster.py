"""A cluster of RocketMQ in this process: name servers, and brokers with real stores.

They speak RocketMQ's remoting protocol with Java's answers, and with faults that a test chooses.

Only the requests of `pyrocket.remoting` are served. `tests/interop` runs the same contract tests on
Java's servers; where this cluster answers differently, it is wrong.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyrocket import Message, Store, StoreConfig
from pyrocket.broker.broker import Broker
from pyrocket.broker.sends import Sent
from pyrocket.engine.message_encoder import Origin
from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.properties import decode_properties
from pyrocket.formats.record import read_header
from pyrocket.remoting.frames import FrameError, FrameReader
from pyrocket.store import consumption_of
from pyrocket.values.lookup import LookupRequest

from support.inner import inner
from support.rocketmq_frames import binary_frame, items_of, json_frame, signature

CLUSTER = "DefaultCluster"
PULLED = {0: "FOUND", 19: "OFFSET_OVERFLOW_ONE", 20: "NO_MATCHED_MESSAGE", 21: "OFFSET_TOO_SMALL"}
SYSTEM_GROUPS = {"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "SELF_TEST_C_GROUP"}
_STOP_S = 10


class RefusedError(Exception):
    """An answer with a code and a remark."""

    def __init__(self, code, remark):
        super().__init__(code, remark)
        self.code, self.remark = code, remark


@dataclass
class Fault:
    """What happens to the next `count` requests with this code, or with any code.

    Attributes:
        action: `cut` closes the connection before the request has an effect, `lose` after it;
            `half` closes it in the middle of the answer; `silence` never answers; `garbage` answers
            with other bytes; a RefusedError is the answer.
    """

    action: str | RefusedError
    code: int | None = None
    count: int = 1


@dataclass
class FakeServer:
    """One server with one port, which stays the same when it is killed and started again.

    Attributes:
        delay_s: How long each answer takes.
        requests: All requests, in the order of their arrival.
    """

    cluster: "RocketMQCluster"
    port: int = 0
    delay_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    requests: list = field(default_factory=list)
    connections: set = field(default_factory=set)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def codes(self):
        """Return the codes of all requests so far."""
        return [request.code for request in self.requests]

    def start(self):
        self.cluster.run(self._start())

    async def _start(self):
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(
            self._serve, sock=listening, ssl=self.cluster.ssl, limit=1 << 20
        )

    def kill(self):
        self.cluster.run(self._kill())

    async def _kill(self):
        self._server.close()
        for writer in self.connections:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        frames, answers = FrameReader(), set()
        self.connections.add(writer)
        try:
            while data := await reader.read(1 << 20):
                while data:
                    room = frames.room()
                    size = min(len(room), len(data))
                    room[:size], data = data[:size], data[size:]
                    for request in frames.received(size):
                        answers.add(asyncio.ensure_future(self._answer(request, writer)))
        except (ConnectionError, FrameError):
            pass  # As Java does, which closes the connection without an answer.
        finally:
            for answer in answers:
                answer.cancel()
            self.connections.discard(writer)
            writer.transport.abort()

    async def _answer(self, request, writer):
        """Answer a request, and count flights: a request that comes while another one waits is in
        the same flight.
        """
        cluster = self.cluster
        self.requests.append(request)
        cluster.flights += not cluster.waiting
        cluster.waiting += 1
        try:
            await asyncio.sleep(self.delay_s)
            await self._apply(self._fault(request), request, writer)
        finally:
            cluster.waiting -= 1

    def _fault(self, request):
        found = next((one for one in self.faults if one.code in (None, request.code)), None)
        if found is None:
            return None
        found.count -= 1
        if not found.count:
            self.faults.remove(found)
        return found.action

    async def _apply(self, action, request, writer):
        if action == "silence":
            return
        if action == "cut":
            writer.transport.abort()
            return
        answer = self._checked(request, action)
        if answer is None:
            return
        code, fields, body, remark = answer
        encode = binary_frame if self.cluster.binary_headers else json_frame
        data = encode(code, request.opaque, fields, body, remark)
        if action == "garbage":
            data = b"\x00\x00\x00\x20" + bytes(range(200, 232))
        writer.write(
            data[: len(data) // 2] if action == "half" else data if action != "lose" else b""
        )
        await writer.drain()
        if action in ("half", "lose"):
            writer.close()

    def _checked(self, request, action):
        """Return code, fields, body and remark of the answer; None for no answer."""
        try:
            if isinstance(action, RefusedError):
                raise action
            self._authenticate(request)
            return self.answer(request)
        except RefusedError as refusal:
            return refusal.code, None, b"", refusal.remark

    def _authenticate(self, request):
        users, given = self.cluster.users, request.fields
        if not users:
            return
        secret = users.get(given.get("AccessKey"))
        if secret is None or signature(secret, given, request.body) != given.get("Signature"):
            text = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
            raise (
                RefusedError(16, "check signature failed.")
                if self.cluster.is_5
                else RefusedError(1, text)
            )

    def answer(self, request):
        raise NotImplementedError


def standard(text, request):
    """Return a route with unquoted integer keys unless the client wants standard JSON."""
    plain = request.version >= 401 or request.fields.get("acceptStandardJsonOnly") == "true"
    return text if plain else unquoted(text)


def unquoted(text):
    """Return JSON with integer keys as fastjson writes them."""
    for number in range(10):
        text = text.replace(f'"{number}":"127', f'{number}:"127')
    return text


def dumps(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class FakeNameServer(FakeServer):
    """A name server. What it knows is what live brokers have registered since it was started."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.known = {}
        self.static_topics = set()

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


class FakeBroker(FakeServer):
    """A broker for a store; with an id above 0, a slave that reads the store of its master.

    Attributes:
        hidden: How many of the newest messages of each queue a slave does not have yet.
        pulled_at_once: The most messages of one answer, 8 for a broker that reads its disk.
    """

    def __init__(self, cluster, name, store, broker_id=0):
        super().__init__(cluster)
        self.name, self.store, self.broker_id = name, store, broker_id
        self.broker = Broker(store) if broker_id == 0 else None
        self.registered_as = ""
        self.hidden, self.pulled_at_once = 0, 32
        self.suggested_id = 0

    @property
    def advertised(self):
        return self.registered_as or self.address

    def topics(self):
        return self.store.topics.all()

    def start(self):
        super().start()
        self.store.lookup.host = (bytes([127, 0, 0, 1]), self.port)
        self.register()

    def register(self):
        for name_server in self.cluster.name_servers:
            name_server.known[self.name, self.broker_id] = self

    def kill(self):
        """Stop serving. The name servers notice at once, because connections are closed."""
        super().kill()
        for name_server in self.cluster.name_servers:
            name_server.known.pop((self.name, self.broker_id), None)

    def answer(self, request):
        serve = getattr(self, f"_answer_{request.code}", None)
        if serve is None:
            return 3, None, b"", f" request type {request.code} not supported"
        try:
            return serve(request.fields, request)
        except (KeyError, PyrocketError) as error:
            return 1, None, b"", f"{type(error).__name__}: {error}"

    def _topic(self, fields, name="topic"):
        topic = self.topics().get(fields[name])
        if topic is None:
            raise RefusedError(17, f"topic[{fields[name]}] not exist, apply first please!")
        return topic

    def _range(self, topic, queue_id):
        found = self.store.queue_range(topic, queue_id)
        return found.minimum, max(found.maximum - self.hidden, found.minimum)

    # Offsets

    def _answer_202(self, fields, request):
        topic = self._topic(fields)
        items = []
        read = topic.read_queues if self.cluster.is_5 else 0
        for queue_id in range(max(topic.write_queues, read)):
            low, high = self._range(topic.name, queue_id)
            key = dumps({"brokerName": self.name, "queueId": queue_id, "topic": topic.name})
            last = self._stored_at(topic.name, queue_id, high - 1) if high > low else 0
            value = {"lastUpdateTimestamp": last, "maxOffset": high, "minOffset": low}
            items.append(f"{key}:{dumps(value)}")
        return 0, None, ('{"offsetTable":{' + ",".join(items) + "}}").encode(), None

    def _answer_30(self, fields, request):
        return (
            0,
            {"offset": str(self._range(fields["topic"], int(fields["queueId"]))[1])},
            b"",
            None,
        )

    def _answer_31(self, fields, request):
        return (
            0,
            {"offset": str(self._range(fields["topic"], int(fields["queueId"]))[0])},
            b"",
            None,
        )

    def _stored_at(self, topic, queue_id, offset):
        (record,) = self.store.messages(topic, queue_id, offset, offset + 1)
        return record.store_timestamp

    def _answer_29(self, fields, request):
        topic, queue_id = fields["topic"], int(fields["queueId"])
        at = self.store.offset_by_time(topic, queue_id, int(fields["timestamp"]))
        low, high = self._range(topic, queue_id)
        last = high if self.cluster.is_5 else max(high - 1, low)
        return 0, {"offset": str(min(at, last))}, b"", None

    def _answer_14(self, fields, request):
        group, topic, queue_id = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
        offset = self.store.groups.committed(group, topic).get(queue_id)
        if offset is None:
            young = queue_id < self.topics()[topic].read_queues if topic in self.topics() else False
            if self.cluster.is_5 or not young or self._range(topic, queue_id)[0]:
                raise RefusedError(
                    22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
            offset = 0
        return 0, {"offset": str(offset)}, b"", None

    def _answer_15(self, fields, request):
        group, topic = fields["consumerGroup"], fields["topic"]
        if self.cluster.is_5:
            self._topic(fields)
            self._check_group(group)
        if topic in self.topics():
            if group not in self.store.groups.all():
                self.store.groups.create(group)
            at = {int(fields["queueId"]): int(fields["commitOffset"])}
            self.store.groups.commit(group, topic, at, backwards=True)
        return 0, None, b"", None

    def _check_group(self, group):
        if group not in SYSTEM_GROUPS and group not in self.store.groups.all():
            raise RefusedError(26, f"subscription group [{group}] does not exist")

    # Messages

    def _answer_11(self, fields, request):
        self._check_group(fields["consumerGroup"])
        topic, queue_id = self._topic(fields), int(fields["queueId"])
        if not topic.readable:
            raise RefusedError(16, f"the topic[{topic.name}] pulling message is forbidden")
        if not 0 <= queue_id < topic.read_queues:
            text = f"queueId[{queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums"
            raise RefusedError(29 if self.cluster.is_5 else 1, text)
        offset, (low, high) = int(fields["queueOffset"]), self._range(topic.name, queue_id)
        found, reached = [], offset
        if low <= offset < high:
            found, reached = self._selected(fields, topic.name, queue_id, offset, high)
            code = 0 if found else 20
        elif offset == high or (low == high and offset == 0):
            code = 20 if self.broker_id else 19
        else:
            code = 20 if self.broker_id and offset > high else 21
            reached = min(max(offset, low), high) if code == 21 else offset
        ends = {"nextBeginOffset": str(reached), "minOffset": str(low), "maxOffset": str(high)}
        ends["suggestWhichBrokerId"] = str(self.suggested_id)
        return code, ends, b"".join(found), PULLED[code]

    def _selected(self, fields, topic, queue_id, offset, high):
        where = MessageFilter.parse(tags=fields.get("subscription") or "*")
        count = min(int(fields["maxMsgNums"]), self.pulled_at_once)
        last = min(high, offset + max(16_000 // 20, count))
        fetch = consumption_of(self.store).fetch
        found = fetch(topic, queue_id, offset, last, where, count, 256 << 10, decode=False)
        return found.raw, found.reached

    def _answer_12(self, fields, request):
        request = LookupRequest(
            topics=[fields["topic"]],
            keys=[fields["key"]],
            begin_ms=int(fields["beginTimestamp"]),
            end_ms=min(int(fields["endTimestamp"]), 2**62),
        )
        if fields["topic"] not in self.topics():
            raise RefusedError(22, "can not find message, maybe time range not correct")
        places = [
            (int(at), int(size))
            for one in self.store.lookup.locate(request).locations
            for at, size in zip(one.log_positions, sizes_of(one), strict=True)
        ]
        newest = sorted(places, reverse=True)[: min(int(fields["maxNum"]), 64)]
        if not newest:
            raise RefusedError(22, "can not find message, maybe time range not correct")
        body = b"".join(self._read(*place) for place in newest)
        return 0, {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}, body, None

    def _answer_33(self, fields, request):
        at = int(fields["offset"])
        end = self.store.position().published
        head = self._read(at, 88) if 0 <= at <= end - 88 else b""
        if not head:
            raise RefusedError(1, f"can not find message by the offset, {at}")
        header = read_header(memoryview(head))
        is_there = header.is_message and at + header.size <= end
        if not is_there and at % 2:  # Java takes other bytes for a size, which may be negative.
            raise RefusedError(1, "java.lang.IllegalArgumentException: newLimit < 0: (-9 < 0)")
        return 0, None, self._read(at, header.size) if is_there else b"", None

    def _read(self, at, size):
        return bytes(inner(self.store).reader.log.read(at, size))

    # Writes

    def _answer_310(self, fields, request):
        block = fields.get("i", "")
        return self._send(fields, [(int(fields["h"]), bytes(request.body), block)])

    def _answer_320(self, fields, request):
        return self._send(fields, [*items_of(request.body)])

    def _send(self, fields, items):
        name, queue_id = fields["b"], int(fields["e"])
        topic = self.topics().get(name)
        if topic is None:
            raise RefusedError(17, f"topic[{name}] not exist, apply first please!")
        if queue_id >= topic.write_queues:
            raise RefusedError(
                29 if self.cluster.is_5 else 1, f"request queueId[{queue_id}] is illegal"
            )
        messages = [
            sent(name, max(queue_id, 0), flag, body, decode_properties(block.encode()), fields)
            for flag, body, block in items
        ]
        with self._open_to_senders(topic):
            results = self.broker.sends.send(messages).result(_STOP_S)
        host = self.store.lookup.host
        ids = [offset_message_id(*host, one.physical_offset) for one in results]
        first = results[0]
        answer = {"msgId": ",".join(ids), "queueId": str(first.queue_id)}
        answer |= {"queueOffset": str(first.queue_offset), "MSG_REGION": "DefaultRegion"}
        return 0, answer, b"", None

    @contextmanager
    def _open_to_senders(self, topic):
        """Java's brokers store messages of topics that are closed to senders in their routes."""
        if topic.writable:
            yield
            return
        self.store.topics.update(topic.name, perm=topic.perm | 2)
        yield
        self.store.topics.update(topic.name, perm=topic.perm)

    def _answer_17(self, fields, request):
        numbers = {
            "read_queues": int(fields["readQueueNums"]),
            "write_queues": int(fields["writeQueueNums"]),
            "perm": int(fields["perm"]),
        }
        name = fields["topic"]
        if name in self.topics():
            self.store.topics.update(name, **numbers)
        else:
            self.store.topics.create(name, **numbers)
        return 0, None, b"", None

    def _answer_200(self, fields, request):
        name = json.loads(bytes(request.body))["groupName"]
        if name not in self.store.groups.all():
            self.store.groups.create(name)
        return 0, None, b"", None


def sizes_of(locations):
    return [
        int.from_bytes(locations.sizes[at : at + 8], "little")
        for at in range(0, len(locations.sizes), 8)
    ]


def sent(topic, queue_id, flag, body, properties, fields):
    """Return a message of a request for `Sends`."""
    own = dict(properties)
    unique_id = own.pop("UNIQ_KEY", "") or f"{time.monotonic_ns():032X}"
    tags, keys = own.pop("TAGS", None), own.pop("KEYS", "").split()
    level = int(own.pop("DELAY", "0"))
    own.pop("WAIT", None)
    message = Message(
        topic=topic,
        body=body,
        tags=tags,
        keys=keys,
        queue_id=queue_id,
        flag=flag,
        delay_level=level,
    )
    origin = Origin(
        unique_id=unique_id,
        born_timestamp=int(fields["g"]),
        sys_flag=int(fields["f"]),
        properties=own,
    )
    return Sent(message, origin)


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
        self._loop = asyncio.new_event_loop()
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
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_STOP_S)

    def call(self, function: Callable):
        """Call a function in the loop, where requests are served."""

        async def called():
            return function()

        return self.run(called())

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
        self._thread.join(_STOP_S)
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
