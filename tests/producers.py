"""What appending processes do; a module of its own, so that spawned processes can import it."""

import pyarrow as pa
from pyrocket import Message, Store

PRODUCERS, BATCHES, ROWS = 4, 25, 40


def produce(path, producer):
    """Append numbered messages, in batches and one by one in turn."""
    with Store.open(path) as store:
        number = 0
        for round_ in range(BATCHES):
            bodies = [f"{producer}:{number + row}" for row in range(ROWS)]
            number += ROWS
            if round_ % 5:
                store.append_batch(pa.record_batch({"body": bodies}), topic="t")
                continue
            for body in bodies:
                store.append(Message(topic="t", body=body.encode(), sharding_key=str(producer)))
