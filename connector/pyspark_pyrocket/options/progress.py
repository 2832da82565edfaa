"""Which consumer groups a read has to do with, and whether it may write at all."""

from dataclasses import dataclass

from pyrocket import check_group_name
from pyrocket.errors import GroupNameError, OptionError

from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import BATCH, READS, STREAM, Option

ROWS = (
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
