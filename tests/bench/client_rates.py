"""Measures `pyrocket.client`: `python -m bench.client_rates PROGRAM WHERE COUNT BATCH`.

WHERE is a directory, or the address of a broker. Each prints messages per second.
"""

import sys
import threading
import time

from pyrocket import Message
from pyrocket.client import ConsumeResult, Producer, PullConsumer, PushConsumer

TOPIC = "orders"
BODY = b"x" * 1024


def push(at, count, batch):
    """Consume with a push consumer, from the first message to the last one."""
    counting, done = threading.Lock(), threading.Event()
    seen, began = 0, 0.0

    def listen(messages):
        nonlocal seen, began
        with counting:
            began = began or time.perf_counter()
            seen += len(messages)
            if seen >= count:
                done.set()
        return ConsumeResult.SUCCESS

    settings = {"consume_from": "first", "consume_message_batch_max_size": batch}
    with PushConsumer("push", **at, subscriptions={TOPIC: "*"}, listener=listen, **settings):
        assert done.wait(300)
        return seen / (time.perf_counter() - began)


def pull(at, count, batch):
    """Consume with a pull consumer."""
    with PullConsumer("pull", **at, consume_from="first") as consumer:
        consumer.assign(consumer.queues(TOPIC))
        seen = len(consumer.poll(60, batch))
        began = time.perf_counter()
        while seen < count:
            seen += len(consumer.poll(60, batch))
        return seen / (time.perf_counter() - began)


def send(at, count, batch):
    """Send batches of messages, one after the other."""
    with Producer(**at) as producer:
        producer.send(Message(topic=TOPIC, body=BODY))
        began = time.perf_counter()
        for _ in range(count // batch):
            producer.send_batch([Message(topic=TOPIC, body=BODY)] * batch)
        return count / (time.perf_counter() - began)


if __name__ == "__main__":
    _, program, where, count, batch = sys.argv
    at = {"endpoint": where} if ":" in where else {"path": where}
    rate = {"push": push, "pull": pull, "send": send}[program](at, int(count), int(batch))
    sys.stdout.write(f"{rate}\n")
