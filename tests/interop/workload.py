"""Writes messages of every kind that a store can contain, with RocketMQ's client."""

import json
import random
import time

from interop.compare import bodies
from interop.rocketmq import outgoing

HALF, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DELAYED = "SCHEDULE_TOPIC_XXXX"
STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")


def name_transaction_topics(path):
    """RocketMQ 4 rejects pulls from topics that are not in its table. Its first check of half
    messages, a minute after the start, adds these two topics.
    """
    common = {"order": False, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    queues = {"readQueueNums": 1, "writeQueueNums": 1}
    table = {name: {"topicName": name, **common, **queues} for name in (HALF, OPS)}
    (path / "config").mkdir(parents=True)
    text = json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table})
    (path / "config/topics.json").write_text(text)


def wait_until(condition, seconds=30):
    """Poll until the condition returns a value that is not empty, and return this value."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.2)


def steady(broker):
    """Return all pulled messages once no more arrive. After a kill, a broker repeats the delayed
    deliveries of its last seconds.
    """
    last = broker.pull()
    while True:
        time.sleep(2)
        last, before = broker.pull(), last
        if last == before:
            return last


def write_everything(java, broker):
    """Send messages; return them by topic, and all messages that RocketMQ's client then pulls."""
    sent = {
        "orders": send_orders(java.peer),
        "batch": send_batch(java.peer),
        "packed": send_packed(java.peer),
        "late": [b"late0", b"late1"],
        "paid": [b"COMMIT_MESSAGE"],
        "work": send_work(java.peer),
    }
    java.peer.send("late", [outgoing(body, delay=1, tags="L") for body in sent["late"]], queues=1)
    halves = [outgoing(state.encode(), keys=state, tags="P", state=state) for state in STATES]
    java.peer.ask("transaction", topic="paid", group="payers", messages=halves)
    return sent, wait_until(lambda: settled(broker, sent))


def send_orders(peer):
    rng = random.Random(5)
    plain = [b"order%d:" % n + rng.randbytes(rng.choice((0, 100, 3000))) for n in range(90)]
    messages = [
        outgoing(
            body,
            tags=("blue", "grün", "")[n % 3],
            keys=f"order{n} batch{n // 10}",
            properties={"kind": "test", "größe": "übergroß 中文"},
            flag=n,
        )
        for n, body in enumerate(plain)
    ]
    messages += [outgoing(b"bare")]
    peer.send("orders", messages, queues=2)
    return [*plain, b"bare"]


def send_batch(peer):
    plain = [b"row%d" % n for n in range(100)]
    rows = [outgoing(body, keys=f"row{n}", tags="rows") for n, body in enumerate(plain)]
    peer.send("batch", rows, batch=True, queues=1)
    return plain


def send_packed(peer):
    plain = [f"{kind} ".encode() * 3000 for kind in ("ZLIB", "LZ4", "ZSTD")]
    for body in plain:
        kind = body.split()[0].decode()
        peer.send("packed", [outgoing(body, tags=kind)], compression=kind, queues=1)
    return plain


def send_work(peer):
    """Send two messages; one of them fails twice and becomes a dead letter."""
    plain = [b"good", b"bad"]
    peer.send("work", [outgoing(body, keys=body.decode()) for body in plain], queues=1)
    attempts = peer.consume("work", "workers", attempts=3)
    assert sorted((one["failed"], one["reconsumeTimes"]) for one in attempts) == [
        *((False, 0), (True, 0), (True, 1)),
    ]
    return plain


def settled(broker, sent):
    """Return all pulled messages if all pending ones have arrived, or None."""
    pulled = broker.pull()

    def count(topic):
        return sum(len(found) for found in bodies(pulled, topic).values())

    decisions = b",".join(bodies(pulled, OPS).get(0, [])).split(b",")
    arrived = {
        "late": count("late") == 2,
        "decisions": len([one for one in decisions if one]) == 2,
        "committed": count("paid") == 1,
        "given up": count("%DLQ%workers") == 1,
        "all": all(count(topic) == len(found) for topic, found in sent.items()),
    }
    return pulled if all(arrived.values()) else None
