"""A fake cluster of RocketMQ in its own process, so that a benchmark does not share its GIL.

python -m bench.fake_cluster DIR BROKERS QUEUES MESSAGES DELAY_MS

Prints the address of its name server. Each queue of the topic `t` has MESSAGES of 1 KiB, and gets
another one for each line of the input. Each answer takes DELAY_MS more. It ends with its input.
"""

import sys
from pathlib import Path

from bench.data import batch
from pyrocket import Message
from support.rocketmq_cluster import rocketmq


def keep_pulled(broker):
    """Answer repeated pulls as before, so that the client is measured and not the store."""
    answered, kept = broker._answer_11, {}

    def answer(fields, request):
        place = fields["queueId"], fields["queueOffset"], fields["maxMsgNums"]
        if place not in kept:
            kept[place] = answered(fields, request)
        return kept[place]

    broker._answer_11 = answer


def serve(folder, brokers, queues, messages, delay_ms):
    names = [f"broker-{number}" for number in range(int(brokers))]
    with rocketmq(Path(folder), brokers=names) as cluster:
        for broker in cluster.brokers:
            broker.store.topics.create("t", read_queues=int(queues), write_queues=int(queues))
            if int(messages):
                rows = batch(int(messages) * int(queues), 1024, rich=False)
                broker.store.append_batch(rows, topic="t", first_queue=0)
                keep_pulled(broker)
            broker.delay_s = float(delay_ms) / 1000
        sys.stdout.write(f"{cluster.name_servers[0].address}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            for broker in cluster.brokers:
                for queue in range(int(queues)):
                    broker.store.append(Message(topic="t", body=b"x" * 1024, queue_id=queue))
            sys.stdout.write("sent\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
