"""A fake cluster of RocketMQ in its own process, so that a benchmark does not share its GIL.

python -m bench.fake_cluster DIR MESSAGES DELAY_MS

Prints the address of its name server. The topic `t` has one queue with MESSAGES of 1 KiB, and each
answer takes DELAY_MS more. It ends with its input.
"""

import sys
from pathlib import Path

from bench.data import batch
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


def serve(folder, messages, delay_ms):
    with rocketmq(Path(folder), brokers=["broker-0"]) as cluster:
        (broker,) = cluster.brokers
        broker.store.topics.create("t", read_queues=1, write_queues=1)
        broker.store.append_batch(batch(int(messages), 1024, rich=False), topic="t")
        keep_pulled(broker)
        broker.delay_s = float(delay_ms) / 1000
        sys.stdout.write(f"{cluster.name_servers[0].address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve(*sys.argv[1:])
