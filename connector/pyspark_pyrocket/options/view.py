"""What of a store is read: the messages of topics, or something that no topic shows."""

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import BATCH, READS, Option

MESSAGES, SCHEDULED, HALF = "messages", "scheduled", "half"

ROWS = (
    Option(
        "view",
        "`messages`",
        (BATCH,),
        "`scheduled`: the messages of the topics that wait to be delivered, with the column "
        "`dueTimestamp`; `half`: those of transactions that are undecided. As of the moment of "
        "planning; `queueOffset` is where they wait.",
    ),
    Option("verifyCrc", "`false`", READS, "Check the checksum of every body that is read."),
)


def view_of(given: Given) -> str:
    """Return which view is asked for."""
    view = given.one_of("view", (MESSAGES, SCHEDULED, HALF))
    for option in ("startingOffsets", "endingOffsets"):
        if view != MESSAGES and option in given:
            raise OptionError(
                f"Option {option!r} is given with view={view}, which shows all that waits now.",
                remedy=f"Remove {option!r}.",
                code="OPTION_CONFLICT",
            )
    return view
