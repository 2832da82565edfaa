"""Which topics a read is about."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import ALL, READS, Option
from pyspark_pyrocket.options.target import TABLE_TRAP

ROWS = (
    Option("subscribe", "required", READS, "The topics to read, separated by commas."),
    Option(
        "topic",
        "none",
        ALL,
        "Reads: the same as `subscribe`, for one topic. "
        "Writes: where every row goes; it wins over a `topic` column.",
    ),
    Option(
        "missingTopic",
        "`fail`",
        READS,
        "`wait` lets some of the topics be created later; at least one must exist.",
    ),
)


@dataclass(frozen=True)
class Subscription:
    """topics: at least one, in the order given; `wait` for those that do not exist yet."""

    topics: tuple[str, ...]
    wait: bool = False

    @classmethod
    def parse(cls, given: Given) -> "Subscription":
        """Read which topics are asked for."""
        return cls(_topics(given), given.one_of("missingTopic", ("fail", "wait")) == "wait")


def one_topic(given: Given) -> str:
    """Return the option `topic`, which names one."""
    name = given.text("topic")
    if not name or "," in name:
        raise given.wrong("topic", "It names one topic; reads take several with 'subscribe'.")
    return name


def _topics(given: Given) -> tuple[str, ...]:
    given.refuse_together("subscribe", "topic", "They mean the same: keep one.")
    if "topic" in given:
        return (one_topic(given),)
    if "subscribe" not in given:
        raise OptionError(
            "No topic is named.",
            remedy=f"Set the option 'subscribe' (or 'topic', for one). {TABLE_TRAP}",
            code="OPTION_MISSING",
        )
    names = [name.strip() for name in given.text("subscribe").split(",")]
    if not all(names):
        raise OptionError(
            f"Option 'subscribe' has an empty name: {given.text('subscribe')!r}.",
            remedy="Separate the names by single commas.",
        )
    return tuple(dict.fromkeys(names))
