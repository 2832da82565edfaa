"""How a read handles lost messages and consumer groups, and whether it may write."""

from dataclasses import dataclass, field

from pyrocket import check_group_name
from pyrocket.errors import GroupNameError

from pyspark_pyrocket.options.option import (
    BATCH,
    READS,
    SERVERS,
    STREAM,
    Kind,
    Option,
    OptionReader,
    boolean,
    choice,
    conflict,
    invalid,
    made_of,
)

FAIL, SKIP, TO_EARLIEST, TO_LATEST = "fail", "skip", "earliest", "latest"

_ON_DATA_LOSS = Option(
    "onDataLoss",
    READS,
    choice(FAIL, SKIP, TO_EARLIEST, TO_LATEST),
    "What to do when messages are lost before they are read (deleted by retention or with their "
    "topic, truncated after a crash, or missing in a restored store). `fail` fails the query "
    "with an error that names the messages. The other policies log the number of lost messages "
    "and continue: `skip` with the remaining messages, `earliest` with the first message of the "
    "queue, `latest` at the end of the queue. All three skip a single corrupt message. A "
    "different store at the path always fails the query.",
)
_FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    READS,
    boolean(default=True),
    "Kafka's name: `true` is `onDataLoss=fail`, `false` is `onDataLoss=skip`; both must agree.",
    default="none",
)
_REMOVED_BROKERS = Option(
    "removedBrokers",
    (STREAM,),
    Kind(
        "names",
        lambda _, text: tuple(name.strip() for name in text.split(",") if name.strip()),
        tuple[str, ...](),
    ),
    "With an `endpoint` of name servers: the names of brokers that have left the cluster for good, "
    "separated by commas. A query that has read them continues without them, and does not read "
    "what was left there. Any other broker that the query has read and that cannot be reached "
    "fails it.",
    targets=SERVERS,
)


@dataclass(frozen=True, kw_only=True)
class LossPolicy:
    """What to do about lost messages and removed brokers.

    policy: FAIL, SKIP, TO_EARLIEST or TO_LATEST.
    removed_brokers: the names of brokers whose queues are not read.
    """

    policy: str = field(default=FAIL, metadata=made_of(_ON_DATA_LOSS, _FAIL_ON_DATA_LOSS))
    removed_brokers: tuple[str, ...] = _REMOVED_BROKERS.field()

    @classmethod
    def parse(cls, given: OptionReader) -> "LossPolicy":
        """Read the policy. Raises OptionError if two options contradict each other."""
        return cls(policy=_policy(given), removed_brokers=given.read(_REMOVED_BROKERS))

    @property
    def fails(self) -> bool:
        return self.policy == FAIL


def _policy(given: OptionReader) -> str:
    policy: str = given.read(_ON_DATA_LOSS)
    if "failOnDataLoss" not in given:
        return policy
    fails = given.read(_FAIL_ON_DATA_LOSS)
    if "onDataLoss" not in given:
        return FAIL if fails else SKIP
    if fails != (policy == FAIL):
        raise conflict(
            f"Option 'failOnDataLoss' is {str(fails).lower()} and 'onDataLoss' is {policy}.",
            "Keep 'onDataLoss'.",
        )
    return policy


_WRITING = ("commitToGroup", "badRecordsTopic")
"""The options with which a read writes to the store."""

_HOW_TO_COMMIT = {
    BATCH: "To move the group when a batch is done, use pyspark_pyrocket.BatchCommit.",
    STREAM: "To make the group follow a stream, name it with 'commitToGroup'.",
}
"""How to move a group, by kind of query; errors show both if the kind is unknown."""


def _parse_group(option: str, text: str) -> str:
    try:
        check_group_name(text)
    except GroupNameError as error:
        raise invalid(option, text, error.remedy) from error
    return text


_GROUP = Kind("text", _parse_group, "")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Consumer groups, and whether the read may write.

    group: the group for `committed` positions; commit_to: the group to move; "" for none.
    """

    group: str = Option(
        "group",
        READS,
        _GROUP,
        "The consumer group that `startingOffsets=committed` and `endingOffsets=committed` refer "
        "to. Reading does not change the group's offsets.",
    ).field()
    commit_to: str = Option(
        "commitToGroup",
        (STREAM,),
        _GROUP,
        "A consumer group whose offsets follow the query. They are committed after Spark has "
        "committed a micro-batch, never move backwards, and are visible to all of RocketMQ's "
        "tools. The group's offsets do not affect what is read. For batches: "
        "`pyspark_pyrocket.BatchCommit`.",
        instead="Spark does not notify a source of the end of a batch, so the source cannot "
        "commit: use pyspark_pyrocket.BatchCommit.",
    ).field()
    read_only: bool = Option(
        "readOnly",
        READS,
        boolean(default=False),
        "Never write to the store. A stream then does not deliver delayed messages.",
    ).field()

    @classmethod
    def parse(cls, given: OptionReader) -> "Progress":
        """Read the options. Raises OptionError if a read-only query would have to write."""
        progress = cls(**given.read_fields(cls))
        _check_group_is_used(given)
        for option in _WRITING if progress.read_only else ():
            if option in given:
                raise conflict(
                    f"Option {option!r} writes to the store, but readOnly=true is given.",
                    "Keep one of them.",
                )
        return progress


def _check_group_is_used(given: OptionReader) -> None:
    """Reject a group that no other option refers to, because it would have no effect."""
    refer = ("startingOffsets", "endingOffsets")
    is_used = any(given.text(option).lower() == "committed" for option in refer)
    if "group" in given and not is_used and given.text("view", "messages").lower() == "messages":
        raise conflict(
            "Option 'group' is given, but no other option refers to it.",
            "Set startingOffsets=committed to start at the group's committed offsets, or remove "
            f"'group'. {_HOW_TO_COMMIT.get(given.query, ' '.join(_HOW_TO_COMMIT.values()))}",
        )
