"""What is done about messages that are gone before they were read."""

from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import READS, Option

FAIL, SKIP, TO_EARLIEST, TO_LATEST = "fail", "skip", "earliest", "latest"
_POLICIES = (FAIL, SKIP, TO_EARLIEST, TO_LATEST)

ROWS = (
    Option(
        "onDataLoss",
        "`fail`",
        READS,
        "What to do about messages that are gone before they were read (deleted by age or size, "
        "with their topic, cut off by a crash, or missing in a restored store): `fail` and name "
        "them, or log how many they are and go on: `skip` with what is left, `earliest` with the "
        "first message of the queue, `latest` behind its last. A single message whose record is "
        "damaged is passed over by all three. Another store at the path always fails.",
    ),
    Option(
        "failOnDataLoss",
        "none",
        READS,
        "Kafka's name: `true` is `onDataLoss=fail`, `false` is `onDataLoss=skip`.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LossPolicy:
    """policy: FAIL, SKIP, TO_EARLIEST or TO_LATEST."""

    policy: str = FAIL

    @classmethod
    def parse(cls, given: OptionReader) -> "LossPolicy":
        """Read what to do about a loss; two options that disagree are refused."""
        policy = given.one_of("onDataLoss", _POLICIES)
        if "failOnDataLoss" not in given:
            return cls(policy=policy)
        fails = given.boolean("failOnDataLoss", default=True)
        if "onDataLoss" not in given:
            return cls(policy=FAIL if fails else SKIP)
        if fails != (policy == FAIL):
            raise OptionError(
                f"Option 'failOnDataLoss' is {str(fails).lower()} and 'onDataLoss' is {policy}.",
                remedy="Keep 'onDataLoss'.",
                code="OPTION_CONFLICT",
            )
        return cls(policy=policy)

    @property
    def fails(self) -> bool:
        """Whether a loss ends the query."""
        return self.policy == FAIL
