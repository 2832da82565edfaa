"""How much of the backlog one micro-batch takes. Pure, integers only."""

from collections.abc import Mapping

from pyspark_pyrocket.options.offsets import QueueNumbers

_Queue = tuple[str, int]
"""Topic and queue id."""


def take_rows(start: QueueNumbers, end: QueueNumbers, max_rows: int) -> QueueNumbers:
    """Return offsets between `start` and `end` that let through about `max_rows` messages.

    Every queue with a backlog gives one message at least; otherwise no more than `max_rows` pass,
    shared out in proportion to the backlogs.
    """
    backlog = {
        (topic, queue): offset - start[topic][queue]
        for topic, queues in end.items()
        for queue, offset in queues.items()
    }
    shares = _shares({key: rows for key, rows in backlog.items() if rows > 0}, max_rows)
    return {
        topic: {
            queue: start[topic][queue] + shares.get((topic, queue), 0) for queue in sorted(queues)
        }
        for topic, queues in end.items()
    }


def _shares(backlog: Mapping[_Queue, int], max_rows: int) -> dict[_Queue, int]:
    if sum(backlog.values()) <= max_rows:
        return dict(backlog)
    spare = max(0, max_rows - len(backlog))
    weight = sum(backlog.values()) - len(backlog)
    if not spare or not weight:
        return dict.fromkeys(backlog, 1)
    shares = {key: 1 + (rows - 1) * spare // weight for key, rows in backlog.items()}
    # What rounding left over goes to those it took most from.
    left = spare + len(backlog) - sum(shares.values())
    lost = sorted(backlog, key=lambda key: -((backlog[key] - 1) * spare % weight))
    for key in lost[:left]:
        shares[key] += 1
    return shares
