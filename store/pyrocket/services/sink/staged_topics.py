"""The topics of a batch to be published: made where they are missing, else as they were."""

from collections.abc import Iterable, Sequence

from pyrocket.engine.delayed_routing import DelayRouter
from pyrocket.engine.writer import Writer
from pyrocket.errors import SinkError
from pyrocket.metadata.topics import TopicConfig, Topics, lacking_topics
from pyrocket.services.sink.batch import Staged


class StagedTopics:
    """The topics of one store, as whoever publishes needs them."""

    def __init__(
        self, topics: Topics, writer: Writer, delays: DelayRouter, *, create: bool
    ) -> None:
        """Make one; without `create` no topic is made but those where messages wait."""
        self._topics, self._writer, self._delays, self._create = topics, writer, delays, create

    def make(self, staged: Sequence[Staged], used: Iterable[str]) -> None:
        """Make what is missing, a turn for each topic: a batch may have hundreds.

        `used` are the topics in which records lie. Raises as `check`.
        """
        used = set(used)
        for _ in self._lacking(staged, used):
            with self._writer.exclusive():
                for topic in self._lacking(staged, used)[:1]:
                    self._put(topic)

    def check(self, staged: Sequence[Staged], used: Iterable[str]) -> None:
        """Check that all rows go where their topics have queues; the caller is in a section.

        Raises SinkError (TOPIC_CHANGED), TopicNotFoundError.
        """
        for topic in self._lacking(staged, set(used)):
            self._put(topic)  # Deleted meanwhile.

    def _put(self, topic: TopicConfig) -> None:
        self._topics.put(topic)
        self._writer.structure_changed()

    def _lacking(self, staged: Sequence[Staged], used: set[str]) -> list[TopicConfig]:
        routed: dict[str, set[int]] = {}
        for one in staged:
            for name, queues in one.topics.items():
                routed.setdefault(name, set()).add(queues)
        known = self._topics.all()
        for name, counts in routed.items():
            if not self._create:
                self._topics.get(name)
            _check_topic(name, counts, known.get(name))
        wanted = {name: max(counts) for name, counts in routed.items()}
        return lacking_topics({**wanted, **self._delays.rooms(used)}, known)


def _check_topic(name: str, queues: set[int], known: TopicConfig | None) -> None:
    """Raise SinkError unless rows were routed to the queues that the topic has, if it is there."""
    found = queues | ({known.write_queues} if known else set())
    if len(found) > 1 or (known and not known.writable):
        raise SinkError(
            f"topic {name!r} was changed while rows for it were staged: it has or had the write"
            f" queues {sorted(found)}, or may not be written any more.",
            remedy="Run the write again; nothing of it is visible.",
            code="TOPIC_CHANGED",
        )
