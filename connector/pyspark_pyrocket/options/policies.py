"""What a read does about lost messages, for consumer groups, and whether it may write."""

from dataclasses import dataclass

from pyrocket import check_group_name
from pyrocket.errors import GroupNameError, OptionError

from pyspark_pyrocket.options.option import BATCH, READS, STREAM, Option, OptionReader

FAIL, SKIP, TO_EARLIEST, TO_LATEST = "fail", "skip", "earliest", "latest"
_POLICIES = (FAIL, SKIP, TO_EARLIEST, TO_LATEST)

LOSS_ROWS = (
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


PROGRESS_ROWS = (
    Option(
        "group",
        "none",
        READS,
        "The consumer group that `startingOffsets=committed` is about; by itself it moves nothing.",
    ),
    Option(
        "commitToGroup",
        "none",
        (STREAM,),
        "A consumer group whose offsets follow the query: each micro-batch once Spark has "
        "committed it, never back, for every tool of RocketMQ to see. It decides nothing about "
        "what is read. Batches: `pyspark_pyrocket.tools.groups`.",
        instead="Spark tells no source when a batch has ended, so it cannot be committed from "
        "there: use pyspark_pyrocket.tools.groups.BatchCommit.",
    ),
    Option(
        "readOnly",
        "`false`",
        READS,
        "Never write to the store: a stream then delivers no delayed messages that are due.",
    ),
)


_WRITING = ("commitToGroup", "badRecordsTopic")
"""The options with which a read writes to the store."""

_MOVERS = {
    BATCH: "To move it when a batch is done, use pyspark_pyrocket.tools.groups.BatchCommit.",
    STREAM: "To have it follow a stream, name it with 'commitToGroup'.",
}
"""How each kind of query moves a group; a read that has not said which it is gets both."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """group: whose committed offsets may be asked for; commit_to: whose are moved; "" is none.

    read_only: whether nothing at all may be written to the store.
    """

    group: str = ""
    commit_to: str = ""
    read_only: bool = False

    @classmethod
    def parse(cls, given: OptionReader) -> "Progress":
        """Read the names of groups, and refuse a commit that may not write."""
        progress = cls(
            group=_group(given, "group"),
            commit_to=_group(given, "commitToGroup"),
            read_only=given.boolean("readOnly", default=False),
        )
        _check_group_is_used(given)
        for option in _WRITING if progress.read_only else ():
            if option in given:
                raise OptionError(
                    f"Both {option!r} and readOnly=true are given, and it writes to the store.",
                    remedy="Keep one of them.",
                    code="OPTION_CONFLICT",
                )
        return progress


def _check_group_is_used(given: OptionReader) -> None:
    """Refuse a group that nothing asks for: who names one wants it to matter."""
    asks = ("startingOffsets", "endingOffsets")
    asked = any(given.text(option).lower() == "committed" for option in asks)
    if "group" in given and not asked and given.text("view", "messages").lower() == "messages":
        raise OptionError(
            "Option 'group' is given, and nothing asks for it.",
            remedy="Set startingOffsets=committed to begin where it stopped, or remove it. "
            f"{_MOVERS.get(given.query, ' '.join(_MOVERS.values()))}",
            code="OPTION_CONFLICT",
        )


def _group(given: OptionReader, option: str) -> str:
    if option not in given:
        return ""
    name = given.text(option)
    try:
        check_group_name(name)
    except GroupNameError as error:
        raise given.wrong(option, error.remedy) from error
    return name
