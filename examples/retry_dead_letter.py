"""An order that fails is retried, becomes a dead letter, and is resent when the fault is fixed."""
# ruff: noqa: T201

import subprocess
import sys
from queue import Queue

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.client import ConsumeResult, Producer, PushConsumer

server, prices, lines = given_server(), {"apple": 30}, Queue[str]()


def bill(messages: list[StoredMessage]) -> ConsumeResult:
    """Consume a batch of one message. An exception has the same effect as RECONSUME_LATER."""
    fruit, attempt = messages[0].body.decode(), messages[0].reconsume_times + 1
    if fruit not in prices:
        lines.put(f"attempt {attempt}: {fruit} has no price")
        return ConsumeResult.RECONSUME_LATER
    lines.put(f"attempt {attempt}: {fruit} costs {prices[fruit]}")
    return ConsumeResult.SUCCESS


def consume(count: int) -> None:
    """Print what the listener does. The second attempt, 10 s later, is also the last one."""
    settings = {**server, "consume_from": "first", "max_reconsume_times": 1}
    with PushConsumer("billing", subscriptions={"fruit": "*"}, listener=bill, **settings):
        for _ in range(count):
            print(lines.get(timeout=60))


with Producer(**server, create=True) as producer:
    producer.send(Message(topic="fruit", body=b"pear"))
consume(2)
prices["pear"] = 45
place = [f"--{name}={value}" for name, value in server.items()]
resend = [sys.executable, "-m", "pyrocket", "dlq", "resend", "billing", "--all", *place]
subprocess.run(resend, check=True)
consume(1)
