"""Batch reads whose end is committed for a consumer group after the result is written.

Spark does not notify a batch source that a query has ended or that its result was written: tasks
may run more than once, and `count()` or `show()` run them as well. A batch read therefore cannot
commit offsets itself. The program commits them after it has written the result:

    from pyspark_pyrocket.tools.groups import BatchCommit

    with BatchCommit.plan("export", path="/data/store", subscribe="flights") as batch:
        rows = spark.read.format("pyrocket").options(**batch.options).load()
        rows.write.mode("append").parquet("/data/flights")

The plan fixes the offsets, from the group's committed offsets to the current ends of the queues, so
the DataFrame reads the same messages however often it is used. If the block ends without an
exception, the end of the plan is committed for the group. If the process is killed before that
commit, the next plan starts at the same offsets: at-least-once, and exactly-once if writing a range
is idempotent.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyrocket import check_group_name
from pyrocket.errors import TopicNotFoundError, TopicRecreatedError

from pyspark_pyrocket.options.option import BATCH, rows_of
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.offsets import Offsets, topics_of
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.transport.interface import Target
from pyspark_pyrocket.transport.targets import opened_source, target_of

_FIXED = {row.name.lower() for row in rows_of(Span)} | {
    *("topic", "subscribe", "subscribepattern", "missingtopic", "group")
}


@dataclass(frozen=True, kw_only=True)
class BatchCommit:
    """A range of every queue, and the group for which `commit` commits its end.

    options: all options of a read of this range, `spark.read.format("pyrocket").options(**…)`.
    start, end: offsets, inclusive and exclusive.
    topic_ids: the ids of the topics; a topic that is deleted and created again has another id.
    """

    group: str
    target: Target
    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def plan(cls, group: str, **options: object) -> "BatchCommit":
        """Return a plan from the group's committed offsets to the current ends of the queues.

        `options` are those of a batch read: the store, the topics and, optionally, the end and the
        policy for lost messages. Queues in which the group has no committed offset begin at their
        first message, or at `startingOffsets`. Needs no Spark session and writes nothing. Raises
        OptionError, GroupNameError, TopicNotFoundError and DataLossError, as a batch read with
        these options does.
        """
        given = {"startingOffsets": "committed"} if _has_no_start(options) else {}
        given |= {name: _text(value) for name, value in options.items()}
        check_group_name(group)
        if "committed" in map(str.lower, given.values()):
            given["group"] = group
        default_store = os.environ.get("PYROCKET_STORE", "")
        parsed = ReadOptions.parse(Request(given, os.getcwd(), default_store), BATCH)
        target = target_of(parsed)
        with opened_source(target) as source:
            bounds = read_bounds(source, parsed)
            if not bounds:
                raise TopicNotFoundError(
                    f"None of the topics to read exists in {target.describe()}.",
                    remedy="Plan again when a topic exists. `missingTopic=wait` allows some "
                    "of the topics to be missing.",
                )
            start, end = find_span(source, parsed, bounds, Losses(parsed.loss))
            ids = {topic: source.topic(topic).topic_id for topic in topics_of(bounds)}
        kept = {name: value for name, value in given.items() if name.lower() not in _FIXED}
        if "assign" not in map(str.lower, kept):
            kept["subscribe"] = ",".join(start.topics)
        kept |= {
            **target.options,
            "startingOffsets": _offsets_json(start),
            "endingOffsets": _offsets_json(end),
        }
        return cls(group=group, target=target, start=start, end=end, topic_ids=ids, options=kept)

    @property
    def messages(self) -> int:
        """The number of messages in the range; a read returns fewer if some were deleted."""
        return self.end.minus(self.start).total()

    def commit(self) -> None:
        """Commit the end of the range for the group, durably; never move the group backwards.

        Queues that a topic no longer has are skipped. A queue that was truncated by a crash is
        committed up to its end. Raises StoreLockedError if another process holds the store
        exclusively, and TopicRecreatedError; then nothing is committed.
        """
        with opened_source(self.target) as source:
            for topic in self.end.topics:
                if source.topic(topic).topic_id != self.topic_ids.get(topic, ""):
                    raise TopicRecreatedError(
                        f"Topic {topic!r} was deleted and created again since the plan.",
                        remedy=f"Group {self.group!r} has no offsets in the new topic: plan again.",
                    )
            source.commit(self.group, self.end)

    def __enter__(self) -> "BatchCommit":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()


def _has_no_start(options: Mapping[str, object]) -> bool:
    names = {name.lower() for name in options}
    return not any(name.startswith("starting") or name == "lastn" for name in names)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _offsets_json(offsets: Offsets) -> str:
    """Return the offsets as the value of an option, with brokers if there are several."""
    several = len({queue.broker for queue in offsets}) > 1
    return json.dumps(offsets.to_json() if several else offsets.by_topic())
