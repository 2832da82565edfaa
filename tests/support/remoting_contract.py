"""What `pyrocket.remoting` promises on every cluster: on the fake one, and on Java's."""

import json
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
from pyrocket.base.credentials import Credentials
from pyrocket.errors import (
    GroupNotFoundError,
    InvalidInputError,
    OffsetOutOfRangeError,
    PyrocketError,
    StorePermissionError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.filters.message_filter import ScanTally
from pyrocket.formats.record_slice import decode_slices
from pyrocket.remoting.calls import CallKind
from pyrocket.remoting.cluster import RocketMQCluster
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.lookups import locate
from pyrocket.remoting.pulls import PullSettings
from pyrocket.remoting.reads import read_range
from pyrocket.remoting.records import records_of
from pyrocket.remoting.requests import (
    READER_GROUP,
    commit,
    committed,
    group_settings,
    group_topics,
    highest_offset,
    lowest_offset,
    members,
    message_at,
    messages_of_key,
    offset_near,
    pull,
    send,
    topic_offsets,
    write_group,
    write_topic,
)
from pyrocket.values.admin import TopicConfig
from pyrocket.values.lookup import LookupRequest
from pyrocket.values.message import MessageQueue, QueueRange, SendStatus

from support.rocketmq_frames import batch_of

CALL_S = 10
LATER_S = 20
FUTURE_MS = 4_000_000_000_000


class Sent(NamedTuple):
    """The answer to a send: the offset of the first message, and the offset id of each."""

    status: SendStatus
    queue_offset: int
    message_ids: list


def sent_by(call):
    """Return the call with the whole answer as its value."""

    def read(answer):
        ids = answer.fields["msgId"].split(",")
        return Sent(call.kind.read(answer).status, int(answer.fields["queueOffset"]), ids)

    return replace(call, kind=replace(call.kind, read=read))


class Client:
    """The client of one broker of a cluster."""

    def __init__(self, addresses, broker="broker-a", credentials=None):
        self.broker, credentials = broker, credentials or Credentials()
        self._connect = partial(RocketMQCluster, addresses, credentials)
        self.names = self._connect()
        found = eventually(lambda: self.names.live_brokers(CALL_S).get(broker))
        self.pool = ConnectionPool(found.addresses[0], credentials, f"broker {broker}")

    def ask(self, *calls):
        return self.pool.ask(calls, CALL_S)

    def one(self, call):
        (value,) = self.ask(call)
        return value

    def topic_names(self):
        """Return the names of all topics now; a cluster that is open remembers them."""
        with closing(self._connect()) as cluster:
            return cluster.topic_names(CALL_S)

    def create(self, topic, read=2, write=2, perm=6):
        self.one(write_topic(TopicConfig(topic, read, write, perm)))

    def send(self, topic, *bodies, queue_id=0, properties="", **more):
        """Send messages and wait until they are visible, some milliseconds after the answers."""
        own = {"group": "producers", "born_ms": 1, **more}
        sent = [
            self.one(
                sent_by(send(topic, queue_id, body, properties=properties.format(n=number), **own))
            )
            for number, body in enumerate(bodies)
        ]
        end = sent[-1].queue_offset + len(sent[-1].message_ids)
        eventually(lambda: self.one(highest_offset(topic, queue_id)) >= end)
        return sent

    def read(self, topic, start, end, settings):
        """Return the bodies of a range of queue 0, and check the count of examined messages."""
        tally, part = ScanTally(), QueueRange(MessageQueue(topic, self.broker, 0), start, end)
        slices = read_range(self.pool, part, settings, tally=tally)
        bodies = [body for batch in decode_slices(slices, ["body"]) for body in batch["body"]]
        assert tally.entries == end - start
        assert tally.messages == len(bodies)
        return [body.as_py() for body in bodies]

    def close(self):
        self.pool.close()
        self.names.close()


def eventually(get, seconds=LATER_S):
    """Return the first true result of `get`, which is called until then."""
    end = time.monotonic() + seconds
    while not (found := get()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
    return found


def bodies_of(data):
    return [record.body for record in records_of(data)]


@pytest.fixture
def topic(request):
    """A name that no other test uses, also on a broker that serves many tests."""
    return f"T-{abs(hash(request.node.nodeid)) % 10**9}-{time.monotonic_ns()}"


class RemotingContract:
    """A fixture `client` is the Client of a cluster with one broker, and `is_5` its generation."""

    def test_a_route_names_the_queues_and_the_addresses_of_a_topic(self, client, topic):
        client.create(topic, read=4, write=3)
        route = eventually(lambda: client.names.routes([topic], CALL_S, fresh=True).get(topic))
        assert route.queues == {"broker-a": TopicConfig(topic, 4, 3, 6)}
        broker = route.brokers["broker-a"]
        assert (broker.name, broker.cluster) == ("broker-a", "DefaultCluster")
        assert broker.addresses == {0: client.pool.address}
        assert broker == client.names.live_brokers(CALL_S)["broker-a"]
        assert topic in client.topic_names()
        assert client.names.routes([f"{topic}-none", topic], CALL_S) == {topic: route}

    def test_offsets_are_those_of_all_queues(self, client, topic):
        client.create(topic)
        assert list(client.one(topic_offsets(topic))) == [0, 1]
        client.send(topic, b"a", b"b", queue_id=1)
        empty, filled = client.one(topic_offsets(topic)).values()
        assert (empty.minimum, empty.maximum, empty.last_update_ms) == (0, 0, 0)
        assert (filled.minimum, filled.maximum) == (0, 2)
        assert filled.last_update_ms > 1_600_000_000_000
        with pytest.raises(TopicNotFoundError, match="mqadmin updateTopic"):
            client.one(topic_offsets(f"{topic}-none"))

    def test_queues_that_can_only_be_read_are_asked_for_one_by_one(self, client, topic, is_5):
        client.create(topic, read=4, write=4)
        client.send(topic, b"a", queue_id=3)
        client.create(topic, read=4, write=2)
        assert list(client.one(topic_offsets(topic))) == ([0, 1, 2, 3] if is_5 else [0, 1])
        ends = [lowest_offset(topic, 3), highest_offset(topic, 3), highest_offset(topic, 2)]
        assert client.ask(*ends) == [0, 1, 0]
        client.create(topic, read=2, write=4)
        assert list(client.one(topic_offsets(topic))) == [0, 1, 2, 3]

    def test_messages_are_pulled_as_they_are_stored(self, client, topic):
        client.create(topic)
        properties = "KEYS\x01k{n}\x02UNIQ_KEY\x01U{n}\x02TAGS\x01t\x02own\x01ä\x02"
        sent = client.send(topic, b"m0", b"m1", b"m2", properties=properties, flag=7)
        assert [answer.queue_offset for answer in sent] == [0, 1, 2]
        assert {answer.status for answer in sent} == {SendStatus.SEND_OK}
        found = client.one(pull(topic, 0, 1, 32))
        assert (found.code, found.next_offset, found.minimum, found.maximum) == (0, 3, 0, 3)
        assert found.suggested_id == 0
        messages = [record.to_message() for record in records_of(found.records)]
        assert [message.body for message in messages] == [b"m1", b"m2"]
        assert [message.queue_offset for message in messages] == [1, 2]
        assert {message.flag for message in messages} == {7}
        assert messages[0].keys == ("k1",)
        assert messages[0].properties["own"] == "ä"
        offset_ids = [answer.message_ids for answer in sent[1:]]
        decoded = [int(ids[0][-16:], 16) for ids in offset_ids]
        assert decoded == [message.physical_offset for message in messages]

    def test_a_pull_gives_at_most_the_messages_asked_for(self, client, topic):
        client.create(topic)
        client.send(topic, *[b"x"] * 5)
        found = client.one(pull(topic, 0, 1, 2))
        assert (len(bodies_of(found.records)), found.next_offset) == (2, 3)

    def test_a_pull_outside_of_the_queue_names_its_range(self, client, topic):
        client.create(topic)
        empty = client.one(pull(topic, 0, 0, 32))
        assert (empty.code, empty.next_offset, empty.maximum) == (19, 0, 0)
        client.send(topic, b"a", b"b")
        end, beyond = client.ask(pull(topic, 0, 2, 32), pull(topic, 0, 9, 32))
        assert (end.code, end.next_offset, bytes(end.records)) == (19, 2, b"")
        assert (beyond.code, beyond.minimum, beyond.maximum) == (21, 0, 2)

    def test_tags_are_selected_by_the_broker(self, client, topic):
        client.create(topic)
        for tag in "abcab":
            client.send(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02")
        found = client.one(pull(topic, 0, 0, 32, READER_GROUP, "a || c"))
        assert bodies_of(found.records) == [b"a", b"c", b"a"]
        none = client.one(pull(topic, 0, 0, 32, READER_GROUP, "z"))
        assert (none.code, none.next_offset, bytes(none.records)) == (20, 5, b"")

    def test_what_cannot_be_pulled_is_an_error_that_names_it(self, client, topic, is_5):
        with pytest.raises(TopicNotFoundError, match=topic):
            client.one(pull(topic, 0, 0, 32))
        client.create(topic)
        kind = InvalidInputError if is_5 else StoreUnavailableError
        with pytest.raises(kind, match="illegal") as caught:
            client.one(pull(topic, 9, 0, 32))
        assert caught.value.code == ("BROKER_REFUSED" if is_5 else "BROKER_FAILED")
        client.create(topic, perm=2)
        with pytest.raises(StorePermissionError, match=topic) as caught:
            client.one(pull(topic, 0, 0, 32))
        assert caught.value.code == "PERMISSION_DENIED"

    def test_many_calls_are_answered_in_their_order(self, client, topic):
        client.create(topic)
        client.send(topic, *(b"%d" % number for number in range(20)))
        pulls = [pull(topic, 0, offset, 1) for offset in (7, 3, 11, 0, 19) * 5]
        found = [bodies_of(answer.records)[0] for answer in client.ask(*pulls)]
        assert found == [b"7", b"3", b"11", b"0", b"19"] * 5

    @pytest.mark.parametrize("in_flight", [1, 3, 16])
    def test_a_range_is_read_in_order_by_many_pulls(self, client, topic, in_flight):
        client.create(topic)
        items = [(b"m%d" % number, f"TAGS\x01{'ab'[number % 2]}\x02") for number in range(300)]
        for at in range(0, 300, 100):
            client.send(topic, batch_of(items[at : at + 100]), is_batch=True)
        settings = PullSettings(in_flight=in_flight, seconds=CALL_S)
        assert client.read(topic, 0, 300, settings) == [body for body, _ in items]
        assert client.read(topic, 37, 38, settings) == [b"m37"]
        assert client.read(topic, 5, 5, settings) == []
        some = PullSettings(in_flight=in_flight, seconds=CALL_S, tags="a")
        chosen = [b"m%d" % number for number in range(10, 290, 2)]
        assert client.read(topic, 10, 290, some) == chosen

    def test_a_range_beyond_the_end_is_out_of_range(self, client, topic):
        client.create(topic)
        client.send(topic, b"a")
        with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 1\); 7 was requested"):
            client.read(topic, 7, 9, PullSettings(seconds=1))
        with pytest.raises(TransportError, match=r"message 1 of .* for 0.3 s") as caught:
            client.read(topic, 0, 3, PullSettings(seconds=0.3))
        assert caught.value.code == "PULL_STALLED"

    def test_an_offset_by_time_is_near_the_time(self, client, topic, is_5):
        client.create(topic)
        client.send(topic, b"a")
        time.sleep(0.05)
        client.send(topic, b"b")
        stored = records_of(client.one(pull(topic, 0, 0, 32)).records)
        early, second, late = client.ask(
            *(offset_near(topic, 0, ms) for ms in (0, stored[1].store_timestamp, FUTURE_MS))
        )
        assert (early, second) == (0, 1)
        assert late == (2 if is_5 else 1)

    def test_committed_offsets_are_those_of_a_group(self, client, topic, is_5):
        client.create(topic)
        client.send(topic, b"a", b"b")
        group = f"G-{topic}"
        assert client.one(committed(group, topic, 0)) == (None if is_5 else 0)
        client.one(write_group(group))
        client.one(commit(group, topic, 0, 2))  # Alone, because it is the first of the group.
        client.one(commit(group, topic, 1, 0))
        assert client.ask(*(committed(group, topic, queue) for queue in (0, 1))) == [2, 0]
        client.one(commit(group, topic, 0, 1))
        assert client.one(committed(group, topic, 0)) == 1, "offsets can go back"

    def test_a_commit_for_an_unknown_group_or_topic(self, client, topic, is_5):
        client.create(topic)
        client.send(topic, b"a")
        group = f"G-{topic}"
        if not is_5:
            client.one(commit(group, topic, 0, 1))
            assert client.one(committed(group, topic, 0)) == 1
            return
        with pytest.raises(GroupNotFoundError, match="mqadmin updateSubGroup"):
            client.one(commit(group, topic, 0, 1))
        client.one(write_group(group))
        with pytest.raises(TopicNotFoundError):
            client.one(commit(group, f"{topic}-none", 0, 1))

    def test_a_record_is_found_by_its_log_offset(self, client, topic):
        client.create(topic)
        (sent,) = client.send(topic, b"here")
        at = int(sent.message_ids[0][-16:], 16)
        assert bodies_of(client.one(message_at(at, topic))) == [b"here"]
        nowhere = [at + step for step in (1, 2, 3, 4, 5, 20, 60)] + [1 << 40]
        assert set(client.ask(*(message_at(offset, topic) for offset in nowhere))) == {None}

    def test_bytes_inside_a_record_are_no_record(self, client, topic):
        """A broker takes the bytes there for a size, and answers with that many bytes."""
        client.create(topic)
        (sent,) = client.send(topic, (100).to_bytes(4, "big") * 50)
        at = int(sent.message_ids[0][-16:], 16)
        assert client.one(message_at(at + 88, topic)) is None
        inside = sent.message_ids[0][:-16] + f"{at + 88:016X}"
        request = LookupRequest(topics=[topic], ids=[inside])
        assert not len(locate(lambda calls: client.ask(*calls), request))

    def test_messages_are_found_by_key(self, client, topic):
        client.create(topic)
        client.send(topic, b"a", properties="KEYS\x01k1 k2\x02UNIQ_KEY\x01UNIQUE\x02")
        client.send(topic, *[b"x"] * 70, properties="KEYS\x01many\x02")

        def found(key):
            return bodies_of(client.one(messages_of_key(topic, key)))

        eventually(lambda: len(found("many")) == 64)
        assert found("k1") == found("k2") == found("UNIQUE") == [b"a"]
        assert found("none") == []

    def test_a_page_of_a_key_ends_at_a_second(self, client, topic):
        """The index has times in whole seconds, so that a page can begin with messages again."""
        client.create(topic)
        client.send(topic, *[b"old"] * 3, properties="KEYS\x01k\x02")
        time.sleep(2.1)
        client.send(topic, batch_of([(b"new", "KEYS\x01k\x02")] * 70), is_batch=True)

        def page(end_ms=FUTURE_MS):
            found = client.one(messages_of_key(topic, "k", 0, end_ms))
            return [(each.body, each.store_timestamp) for each in records_of(found)]

        eventually(lambda: len(page()) == 64)
        oldest = min(stored for _, stored in page())
        assert {body for body, _ in page(oldest - 2000)} == {b"old"}
        assert page(oldest), "messages that were stored up to a second later are among them"
        request = LookupRequest(topics=[topic], keys=["k"])
        with pytest.raises(UnsupportedError, match="more than 64 messages") as caught:
            locate(lambda calls: client.ask(*calls), request)
        assert caught.value.code == "LOOKUP_INCOMPLETE"

    def test_messages_of_a_key_are_located_by_pages(self, client, topic):
        client.create(topic)
        for _ in range(3):
            client.send(topic, *[b"x"] * 40, properties="KEYS\x01a b\x02")
            time.sleep(2.1)
        request = LookupRequest(topics=[topic], keys=["a"])
        found = eventually(
            lambda: (
                (it := locate(lambda calls: client.ask(*calls), request)) and len(it) == 120 and it
            )
        )
        (places,) = found.locations
        assert (places.queue_id, places.queue_offsets.tolist()) == (0, [*range(120)])

    def test_a_batch_is_stored_message_by_message(self, client, topic):
        client.create(topic)
        items = [(b"m%d" % number, f"UNIQ_KEY\x01U{number}\x02") for number in range(3)]
        (sent,) = client.send(topic, batch_of(items), queue_id=1, is_batch=True)
        assert (sent.queue_offset, len(sent.message_ids)) == (0, 3)
        found = client.one(pull(topic, 1, 0, 32))
        assert bodies_of(found.records) == [b"m0", b"m1", b"m2"]

    def test_sending_never_creates_a_topic(self, client, topic):
        with pytest.raises(TopicNotFoundError, match=topic):
            client.send(topic, b"x")
        assert topic not in client.topic_names()

    def test_a_message_is_refused_only_for_a_queue_that_does_not_exist(self, client, topic):
        """A topic that is closed to senders is closed in its route only."""
        client.create(topic, write=1)
        with pytest.raises(PyrocketError, match="illegal"):
            client.send(topic, b"x", queue_id=5)
        client.create(topic, perm=4)
        client.send(topic, b"x")

    def test_a_group_is_created_once(self, client, topic):
        for _ in range(2):
            client.one(write_group(f"G-{topic}"))

    def test_groups_have_settings_topics_and_members(self, client, topic):
        client.create(topic)
        client.send(topic, b"a")
        group = f"G-{topic}"
        assert group not in client.one(group_settings())["subscriptionGroupTable"]
        client.one(write_group(group))
        settings = client.one(group_settings())["subscriptionGroupTable"][group]
        assert (settings["retryMaxTimes"], settings["consumeEnable"]) == (16, True)
        assert client.ask(group_topics(group), members(group)) == [[], []]
        client.one(commit(group, topic, 0, 1))
        assert client.one(group_topics(group)) == [topic]

    def test_a_broker_is_no_name_server(self, client):
        names = RocketMQCluster([client.pool.address], Credentials())
        with pytest.raises(UnsupportedError, match="is a broker, not a name server") as caught:
            names.routes(["T"], CALL_S)
        assert caught.value.code == "PROTOCOL_UNKNOWN"
        names.close()

    def test_a_request_that_a_broker_does_not_know_is_an_error(self, client):
        call = CallKind(7777, "something", lambda answer: None)()
        with pytest.raises(UnsupportedError, match="usually port 9876") as caught:
            client.one(call)
        assert caught.value.code == "PROTOCOL_UNKNOWN"

    def test_all_bodies_of_answers_are_json_that_can_be_read(self, client, topic):
        """Keys that are numbers or objects are no JSON."""
        client.create(topic)
        client.send(topic, b"a")
        raw = client.one(CallKind(202, "raw", lambda one: one, "topic")(topic))
        with pytest.raises(json.JSONDecodeError):
            json.loads(bytes(raw.body))
        assert client.one(topic_offsets(topic))[0].maximum == 1
