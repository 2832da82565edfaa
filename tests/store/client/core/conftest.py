import pytest
from support.store_brokers import Brokers


@pytest.fixture
def cluster(tmp_path):
    """Creates brokers with the topic orders, and messages in each of its queues."""
    made = []

    def create(*, queues=2, messages=5, brokers=("a",)):
        made.append(Brokers(tmp_path, brokers, {"orders": queues}))
        for queue in made[-1].queues["orders"]:
            for number in range(messages):
                made[-1].append(queue, b"%d-%d" % (queue.queue_id, number))
        return made[-1]

    yield create
    for one in made:
        one.close()
