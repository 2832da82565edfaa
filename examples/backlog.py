"""The backlog of each consumer group: messages, and the age of the oldest one, for each queue."""
# ruff: noqa: T201

from client_arguments import given_server
from pyrocket import Message
from pyrocket.client import Producer, PullConsumer
from pyrocket.tools.session import Place, open_sessions
from pyrocket.tools.summaries import lags_of_all


def show_backlog(group: str, limit: int) -> None:
    """Print one line for each queue, and a warning if the sum is above a limit."""
    with open_sessions(Place(**server)) as stores:
        queues = lags_of_all(stores, group)
    for queue in queues:
        age = f", the oldest {queue.delay_ms / 1000:.1f} s old" if queue.lag else ""
        print(f"{queue.topic} {queue.queue_id}: {queue.lag} messages{age}")
    total = sum(queue.lag for queue in queues)
    print(f"{group} has {total} messages to consume{': too many!' if total > limit else ''}")


server = given_server()
with Producer(**server, create=True) as producer:
    for number in range(8):
        producer.send(Message(topic="views", body=b"%d" % number))

# A group has a backlog in a queue as soon as it has committed an offset there.
with PullConsumer("reports", **server, consume_from="first") as consumer:
    queues = consumer.queues("views")
    consumer.assign(queues)
    consumer.commit(dict.fromkeys(queues, 0))
    show_backlog("reports", limit=5)
    while messages := consumer.poll(0.5):
        print(f"read {len(messages)}")
    consumer.commit()
    show_backlog("reports", limit=5)
