"""From where to where a read goes."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.offsets import EARLIEST, LATEST, OffsetChoice
from pyspark_pyrocket.options.option import BATCH, READS, STREAM, Option

ROWS = (
    Option(
        "startingOffsets",
        "`latest` (stream), `earliest` (batch)",
        READS,
        '`earliest`, `latest`, or JSON for every queue, `{"t":{"0":23,"1":"earliest"}}`, with or '
        "without a broker level; -2 is earliest, -1 latest. Inclusive. "
        "A stream uses it once: afterwards its checkpoint counts.",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        (BATCH,),
        "`latest` or JSON as above, without `earliest`. Exclusive.",
    ),
)

_FROM_EARLIEST = OffsetChoice("startingOffsets", EARLIEST)
_TO_LATEST = OffsetChoice("endingOffsets", LATEST)


@dataclass(frozen=True)
class Span:
    """The offsets of a batch; a stream begins with `starting`, and only once."""

    starting: OffsetChoice = _FROM_EARLIEST
    ending: OffsetChoice = _TO_LATEST

    @classmethod
    def parse(cls, given: Given) -> "Span":
        """Read where to start and, of a batch, where to end."""
        return cls(_starting(given), _ending(given))


def _starting(given: Given) -> OffsetChoice:
    default = "latest" if given.query == STREAM else "earliest"
    choice = OffsetChoice.parse("startingOffsets", given.text("startingOffsets", default))
    if given.query == BATCH and choice.uses(LATEST):
        raise OptionError(
            "Option 'startingOffsets' says latest, and a batch that starts there is empty.",
            remedy="Use earliest or offsets; a stream can start at latest.",
        )
    return choice


def _ending(given: Given) -> OffsetChoice:
    choice = OffsetChoice.parse("endingOffsets", given.text("endingOffsets", "latest"))
    if choice.uses(EARLIEST):
        raise OptionError(
            "Option 'endingOffsets' says earliest, and a batch that ends there is empty.",
            remedy="Use latest or offsets.",
        )
    return choice
