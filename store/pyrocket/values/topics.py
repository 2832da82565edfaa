"""A topic and its settings."""

from dataclasses import dataclass

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
"""On disk: never renumber."""


@dataclass(frozen=True)
class TopicConfig:
    """One topic. Readers use `read_queues`, senders `write_queues`.

    ordered: whether producers choose the queue of a sharding key from the queues of all brokers,
        also of brokers that are gone: then a key never moves to another queue.
    topic_id: unique for each topic that is created; empty for a topic created by a broker.
    """

    name: str
    read_queues: int
    write_queues: int
    perm: int = PERM_READ | PERM_WRITE
    ordered: bool = False
    topic_id: str = ""

    @property
    def readable(self) -> bool:
        """Whether its messages may be read."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether messages may be sent to it."""
        return bool(self.perm & PERM_WRITE)
