"""What everybody who changes half messages of one store shares."""

import threading
from collections.abc import Mapping

from pyrocket.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.engine.delayed_routing import DelayRouter
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.service_cursors import save_transaction_cursors
from pyrocket.metadata.topics import Topics, lacking_topics
from pyrocket.services.transactions.half_messages import Cursors, HalfMessages
from pyrocket.services.transactions.model import CheckPolicy


class Ledger:
    """The undecided half messages of one store, and what is needed to change them; to be shared.

    Whoever holds `lock` may be in a turn, but never waits for one.
    """

    def __init__(
        self, layout: Layout, reader: Reader, clock: Clock, delays: DelayRouter, policy: CheckPolicy
    ) -> None:
        self.reader, self.clock, self.delays, self.policy = reader, clock, delays, policy
        self._layout = layout
        self.undecided = HalfMessages(reader, Epochs(layout))
        self.lock = threading.RLock()

    @property
    def topics(self) -> Topics:
        """The topic table."""
        return self.reader.topics

    def cursors(self, writer: Writer) -> dict[int, int]:
        """Return the half and op cursors by word."""
        return {word: writer.page[word] for word in (HALF_CURSOR, OP_CURSOR)}

    def catch_up(self, writer: Writer) -> None:
        """See what there is; the caller is in a turn and holds the lock."""
        self.undecided.catch_up(self.cursors(writer))

    def make_rooms(self, writer: Writer, queues: Mapping[str, int]) -> None:
        """Put topics into the table that are missing there; the caller is in a turn."""
        for topic in lacking_topics(queues, self.topics.all()):
            self.topics.put(topic)
            writer.structure_changed()

    def save_cursors(self, cursors: Cursors) -> None:
        """Keep cursors as RocketMQ does; what they say is durable, and the caller is in a turn."""
        save_transaction_cursors(self._layout, cursors)
