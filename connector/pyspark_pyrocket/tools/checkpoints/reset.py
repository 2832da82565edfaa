"""Moves a query to other offsets; its sink receives one empty micro-batch.

The plan of one more micro-batch is added to the checkpoint. It ends at the new offsets and reads
nothing, because they are marked `initial`. When the query is started again, Spark runs and commits
this micro-batch, and plans the next one from there. Sinks and states therefore receive an unbroken
series of micro-batches.

No file of Spark is changed unless the last micro-batch was planned but not committed. Then its plan
is replaced, and rows that it has written to the sink stay there. A last plan that cannot be read,
for example after a power loss, is replaced as well. Other files that prevent Spark from reading the
checkpoint are moved to the backup.
"""

import json
import os
import shutil
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

from pyrocket import MessageQueue, check_group_name
from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options.json_values import ByQueue
from pyspark_pyrocket.options.option import STREAM
from pyspark_pyrocket.options.positions import (
    EARLIEST,
    LATEST,
    WORDS,
    CommittedOffsets,
    OffsetChoice,
    SpanPlace,
    TimeChoice,
)
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.resume import StoreChanges
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import initial_offset
from pyspark_pyrocket.tools.checkpoints.files import (
    BACKUPS,
    OFFSETS,
    PlannedBatch,
    SparkCheckpoint,
    crc_path,
    read_checkpoint,
)
from pyspark_pyrocket.transport.interface import MessageSource

_OPTION = "--to"


@dataclass(frozen=True)
class Move:
    """A plan to write: micro-batch `batch`, which reads nothing.

    before, after: the offsets of the source that is moved.
    replaces: the numbers of the plans that it replaces, up to `batch`.
    in_the_way: files that are moved to the backup.
    """

    path: Path
    batch: int
    content: str
    before: StreamOffset
    after: StreamOffset
    replaces: tuple[int, ...] = ()
    in_the_way: tuple[str, ...] = ()


def place_of(to: str, group: str) -> SpanPlace:
    """Return the place for `--to`: a name, JSON with offsets of some queues, or a time."""
    text = to.strip()
    if text.lower() == "committed":
        if not group:
            raise OptionError(
                f"{_OPTION} committed needs a group.",
                remedy="Name it with --group.",
                code="OPTION_MISSING",
            )
        check_group_name(group)
        return CommittedOffsets(_OPTION, group, LATEST)
    if text.lower() in WORDS or text.startswith("{"):
        return OffsetChoice.parse(_OPTION, text)
    return TimeChoice.parse(_OPTION, text)


def plan_reset(
    checkpoint: SparkCheckpoint,
    reads: MessageSource,
    place: SpanPlace,
    *,
    topics: Sequence[str] = (),
    source: int | None = None,
) -> Move:
    """Return the move of a query to `place`, for all of its topics or only `topics`.

    If `place` names queues, only these are moved.
    source: the source's index in the query, required if several sources are pyrocket's. Raises
    InvalidInputError (CHECKPOINT_EMPTY, CHECKPOINT_SOURCE, CHECKPOINT_TOPIC) and the errors of a
    new query at `place`.
    """
    newest = checkpoint.last()
    index = source_of(newest, source)
    before = newest.ours()[index]
    moved = _moved_queues(reads, before, place, topics)
    after = _offset_after_move(reads, before, moved, place)
    lines = list(newest.sources)
    lines[index] = json.dumps(after.to_json())
    first = newest.number + 1 if newest.committed else newest.number
    replaced = tuple(number for number in checkpoint.planned if number >= first)
    return Move(
        checkpoint.path,
        max(replaced, default=first),
        "\n".join(["v1", newest.settings, *lines]),
        before,
        after,
        replaces=replaced,
        in_the_way=tuple(filter(None, (damage.in_the_way for damage in checkpoint.damaged))),
    )


def write_move(move: Move, now_ms: int) -> Path | None:
    """Write the plan durably; return the backup directory of replaced files, or None without any.

    Raises InvalidInputError (CHECKPOINT_MOVED) if the query has progressed in the meantime.
    """
    if _has_progressed(move):
        raise InvalidInputError(
            f"The query of {move.path} has progressed in the meantime: it is running.",
            remedy="Stop it and try again. Nothing has been written.",
            code="CHECKPOINT_MOVED",
        )
    replaced = [f"{OFFSETS}/{number}" for number in move.replaces]
    kept = _keep(move.path, [*replaced, *move.in_the_way], now_ms)
    for name in move.in_the_way:
        (move.path / name).unlink()
    for number in {*move.replaces, move.batch}:
        _put(move.path / OFFSETS / str(number), move.content)
    return kept


def source_of(newest: PlannedBatch, wanted: int | None) -> int:
    """Return the index of the source to move. Raises InvalidInputError (CHECKPOINT_SOURCE)."""
    ours = list(newest.ours())
    if wanted in ours:
        return ours[ours.index(wanted)]
    if wanted is None and len(ours) == 1:
        return ours[0]
    raise InvalidInputError(
        f"The query has {len(newest.sources)} sources; those numbered {ours} are pyrocket's.",
        remedy="Select one with --source." if ours else "The query has no source to move.",
        code="CHECKPOINT_SOURCE",
    )


def _moved_queues(
    reads: MessageSource, before: StreamOffset, place: SpanPlace, topics: Sequence[str]
) -> set[MessageQueue]:
    """Return the existing queues to move: those that `place` names, or all of the topics."""
    named = place.queues if isinstance(place, OffsetChoice) else {}
    wanted = topics or (*named,)
    # A topic that the query waits for has no queues, and so no offsets to move.
    known = before.offsets.topics
    unknown = [topic for topic in wanted if topic not in known]
    if unknown:
        raise InvalidInputError(
            f"The query does not read topic {unknown[0]!r}.",
            remedy=f"It reads {', '.join(known)}.",
            code="CHECKPOINT_TOPIC",
        )
    existing = reads.topics()
    bounds = reads.bounds(
        [topic for topic in wanted or known if topic in existing or topic in wanted]
    )
    queues = {queue for queue in before.offsets if queue in bounds}
    return _named_queues(named, queues) if named else queues


def _named_queues(named: ByQueue[int], queues: Set[MessageQueue]) -> set[MessageQueue]:
    """Return the queues that JSON names. Raises InvalidInputError (CHECKPOINT_TOPIC)."""
    chosen = set()
    for topic, brokers in named.items():
        known = {queue for queue in queues if queue.topic == topic}
        for broker, ids in brokers.items():
            of_broker = {queue.queue_id: queue for queue in known if broker in ("", queue.broker)}
            unknown = sorted(set(ids).difference(of_broker))
            if unknown:
                raise InvalidInputError(
                    f"The query does not read queue {unknown[0]} of topic {topic!r}.",
                    remedy=f"It reads {', '.join(map(str, sorted(known)))}.",
                    code="CHECKPOINT_TOPIC",
                )
            chosen |= {of_broker[queue_id] for queue_id in ids}
    return chosen


def _offset_after_move(
    reads: MessageSource, before: StreamOffset, moved: Set[MessageQueue], place: SpanPlace
) -> StreamOffset:
    kept = {*(queue.topic for queue in moved), *_staying_topics(reads, before, moved)}
    given = {**reads.target.options, "assign": _assigned(moved)}
    options = ReadOptions.parse(Request(given, "/"), STREAM)
    start = _for_each_broker(place, reads, moved)
    there = initial_offset(reads, replace(options, span=Span(starting=start)))
    offsets = before.offsets.of_topics(kept)
    offsets = offsets.merge(Offsets({queue: there.offsets[queue] for queue in moved}))
    waiting = tuple(topic for topic in before.waiting if topic in kept)
    ids = {topic: known for topic, known in before.topic_ids.items() if topic in kept}
    ids |= there.topic_ids
    brokers = {
        broker: replace(there.brokers[broker], mark=source.mark(offsets.of_broker(broker)))
        for broker, source in reads.by_broker().items()
    }
    return replace(
        there, brokers=brokers, offsets=offsets, waiting=waiting, topic_ids=ids, lost=before.lost
    )


def _for_each_broker(place: SpanPlace, reads: MessageSource, moved: Set[MessageQueue]) -> SpanPlace:
    """Return the place with a value for each queue that a plan has.

    The plan has queues of these ids at all brokers; only those that are moved are used.
    """
    if not isinstance(place, OffsetChoice) or not place.queues:
        return place
    ids = {(queue.topic, queue.queue_id) for queue in moved}
    queues: dict[str, dict[str, dict[int, int]]] = {}
    for queue in reads.bounds([*place.queues]):
        if (queue.topic, queue.queue_id) in ids:
            named = place.queues[queue.topic]
            given = named.get(queue.broker, named.get("", {}))
            offset = given.get(queue.queue_id, EARLIEST)
            queues.setdefault(queue.topic, {}).setdefault(queue.broker, {})[queue.queue_id] = offset
    return replace(place, queues=queues)


def _staying_topics(
    reads: MessageSource, before: StreamOffset, moved: Set[MessageQueue]
) -> list[str]:
    """Return the topics with queues that are not moved and that retain their offsets.

    If the store was replaced or restored, the offsets of topics that it does not have are dropped.
    Raises InvalidInputError (CHECKPOINT_TOPIC) if such an offset is no longer valid.
    """
    changes = StoreChanges.since(reads, before)
    is_other = bool(changes.restored) or _is_other_store(reads, before)
    bounds = reads.bounds([topic for topic in before.offsets.topics if topic in reads.topics()])
    left = {queue.topic for queue in before.offsets if queue in bounds and queue not in moved}
    moved_topics = {queue.topic for queue in moved} - left
    stays = [topic for topic in before.topics if topic not in moved_topics]
    if is_other:
        stays = [topic for topic in stays if topic not in changes.deleted]
    for topic in stays:
        cut = [queue for queue in changes.cuts if queue.topic == topic and queue not in moved]
        if is_other or cut or topic in dict(changes.recreated):
            raise InvalidInputError(
                f"The checkpoint's offsets of topic {topic!r} are no longer valid in "
                f"{reads.target.describe()}, and moving only others would hide that.",
                remedy=f"Move all queues of this topic as well: add --topic {topic}, or omit "
                "--topic and the offsets of queues.",
                code="CHECKPOINT_TOPIC",
            )
    return stays


def _is_other_store(reads: MessageSource, before: StreamOffset) -> bool:
    """Return whether the offsets belong to another store than that of their broker."""
    stores = {known.store for known in before.brokers.values()} - {""}
    now = {known.store for known in reads.identities().values()} - {""}
    return bool(stores and now and not stores & now)


def _assigned(moved: Set[MessageQueue]) -> str:
    """Return the queues as the option `assign`."""
    queues: dict[str, list[int]] = {}
    for queue in sorted(moved):
        queues.setdefault(queue.topic, []).append(queue.queue_id)
    return json.dumps(queues)


def _has_progressed(move: Move) -> bool:
    """Return whether the checkpoint's files have changed since the move was planned."""
    checkpoint = read_checkpoint(str(move.path))
    first = min(move.replaces, default=move.batch)
    newest = checkpoint.newest_committed
    planned = tuple(number for number in checkpoint.planned if number >= first)
    return planned != move.replaces or (newest is not None and newest.number >= first)


def _keep(path: Path, names: Sequence[str], now_ms: int) -> Path | None:
    """Copy files to a backup directory and return it; None without files."""
    stamp = datetime.fromtimestamp(now_ms / 1000, tz=timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder = path / BACKUPS / stamp
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path / name, folder / name)
    return folder if names else None


def _put(file: Path, content: str) -> None:
    """Atomically replace a file of Spark; delete the old checksums first."""
    fresh = file.with_name(f".{file.name}.{uuid4()}.tmp")
    with fresh.open("x") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    crc_path(file).unlink(missing_ok=True)
    os.replace(fresh, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
