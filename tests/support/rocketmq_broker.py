"""The broker of the fake RocketMQ cluster: a real store behind Java's answers."""

import json
import time
from contextlib import contextmanager

from pyrocket import Message
from pyrocket.broker.broker import Broker
from pyrocket.broker.sends import Sent
from pyrocket.engine.message_encoder import Origin
from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.properties import decode_properties
from pyrocket.store import consumption_of
from pyrocket.values.lookup import LookupRequest

from support.inner import inner
from support.rocketmq_frames import items_of
from support.rocketmq_server import FakeServer, RefusedError

PULLED = {0: "FOUND", 19: "OFFSET_OVERFLOW_ONE", 20: "NO_MATCHED_MESSAGE", 21: "OFFSET_TOO_SMALL"}
SYSTEM_GROUPS = {"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "SELF_TEST_C_GROUP"}
STOP_S = 10


def dumps(value):
    """Return JSON as fastjson writes it: without spaces, fields sorted by name."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class FakeBroker(FakeServer):
    """A broker for a store; with an id above 0, a slave that reads the store of its master.

    Attributes:
        expired: The first offset of all queues.
        hidden: How many of the newest messages of each queue a slave does not have yet.
        pulled_at_once: The most messages of one answer, 8 for a broker that reads its disk.
    """

    def __init__(self, cluster, name, store, broker_id=0):
        super().__init__(cluster)
        self.name, self.store, self.broker_id = name, store, broker_id
        self.broker = Broker(store) if broker_id == 0 else None
        self.registered_as = ""
        self.hidden, self.pulled_at_once = 0, 32
        self.suggested_id = self.expired = 0

    def reset(self):
        super().reset()
        self.hidden, self.pulled_at_once, self.suggested_id = 0, 32, 0
        self.expired = 0

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
        low = min(max(found.minimum, self.expired), found.maximum)
        return low, max(found.maximum - self.hidden, low)

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

    def _answer_201(self, fields, request):
        names = [*SYSTEM_GROUPS, *self.store.groups.all()]
        table = {
            name: {
                "consumeEnable": True,
                "groupName": name,
                "retryMaxTimes": 16,
                "retryQueueNums": 1,
            }
            for name in names
        }
        found = {"dataVersion": {"counter": 1, "timestamp": 1}, "subscriptionGroupTable": table}
        return 0, None, dumps(found).encode(), None

    def _answer_208(self, fields, request):
        group, items = fields["consumerGroup"], []
        for topic in self.store.groups.topics(group):
            if topic not in self.topics():
                continue
            known = self.store.groups.committed(group, topic)
            for queue_id in range(self.topics()[topic].write_queues):
                key = dumps({"brokerName": self.name, "queueId": queue_id, "topic": topic})
                _, high = self._range(topic, queue_id)
                value = {"brokerOffset": high, "consumerOffset": known.get(queue_id, 0)}
                items.append(f"{key}:{dumps(value | {'lastTimestamp': 0})}")
        body = '{"consumeTps":0,"offsetTable":{' + ",".join(items) + "}}"
        return 0, None, body.encode(), None

    def _answer_38(self, fields, request):
        raise RefusedError(1, f"no consumer for this group, {fields['consumerGroup']}")

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
        # Java's index has the times in whole seconds since its first message.
        request = LookupRequest(
            topics=[fields["topic"]],
            keys=[fields["key"]],
            begin_ms=int(fields["beginTimestamp"]),
            end_ms=min(int(fields["endTimestamp"]), 2**62) + 999,
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
        # Java takes any bytes there for a size.
        size = int.from_bytes(head[:4], "big", signed=True)
        if size < 0:
            raise RefusedError(1, f"java.lang.IllegalArgumentException: newLimit < 0: ({size} < 0)")
        return 0, None, self._read(at, size) if at + size <= end else b"", None

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
            results = self.broker.sends.send(messages).result(STOP_S)
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
    level, due = int(own.pop("DELAY", "0")), own.pop("TIMER_DELIVER_MS", None)
    own.pop("WAIT", None)
    message = Message(
        topic=topic,
        body=body,
        tags=tags,
        keys=keys,
        queue_id=queue_id,
        flag=flag,
        delay_level=level,
        deliver_at_ms=None if due is None else int(due),
    )
    origin = Origin(
        unique_id=unique_id,
        born_timestamp=int(fields["g"]),
        sys_flag=int(fields["f"]),
        properties=own,
    )
    return Sent(message, origin)
