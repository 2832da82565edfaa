"""Checks the JSON files of RocketMQ and pyrocket, the topic table and committed offsets.

Each file is parsed by the class that the store itself uses, so a file without findings can be read
by the store.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyrocket.base.config import MAX_QUEUES
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.metadata.groups import GroupOffsets, OffsetsByQueue, Subscriptions
from pyrocket.metadata.json_table import BY_HAND, EMPTY, MISSING, Content, JsonTable
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.metadata.retention import RetentionFile
from pyrocket.metadata.role import RoleFile
from pyrocket.metadata.service_cursors import DelayOffsets, read_cursors
from pyrocket.metadata.topics import Topics, entry_of
from pyrocket.services.consumption import check_pop_file
from pyrocket.services.sink.ledger import check_ledger
from pyrocket.tools.verify.report import SIZES, Findings, Severity, repair
from pyrocket.values.admin import TopicConfig

_BACKUP = ".bak"
_USE_BACKUP = repair("replaces it by its backup, which brokers use in this case anyway.")
_BEGIN_EMPTY = repair(
    "moves it to pyrocket/quarantine: without a backup, the table is then empty. If there is"
    " a copy of the file elsewhere, restore the copy instead."
)
_QUARANTINE_ENDS = repair("moves it to pyrocket/quarantine; the next writer creates a new one.")
_RESTORE_FOLDER = (
    "Move it away, and restore the folder from a backup. Without a backup, `pyrocket repair` then"
    " restores topics, but neither the offsets of groups nor the checkpoints of running queries."
)
_CREATE_FOLDER = repair(
    "creates it, and the topic table in it. No repair can restore the offsets of groups: if"
    " there is a copy of the folder, restore the copy instead."
)

_OFFSETS = "config/consumerOffset.json"
Key = tuple[str, int]


def check_config(
    layout: Layout, findings: Findings, identity_error: StoreDamagedError | None
) -> None:
    """Check all JSON files; `identity_error` is the error found in `store.json`, if any."""
    if _is_folder(layout.config("x").parent, findings):
        for path, table in _tables(layout).items():
            _check_table(path, table, findings)
    if not _is_folder(layout.own, findings):
        return
    for path, parse in {
        layout.topic_ids: lambda: Topics(layout, lambda: 0).remembered(),
        layout.epochs: lambda: Epochs(layout).current,
        layout.role: lambda: RoleFile(layout).read(),
        layout.retention: lambda: RetentionFile(layout).read(),
        layout.group_starts: lambda: GroupStartFile(layout).all(),
        layout.sink_ledger: lambda: check_ledger(layout),
        layout.cursors: lambda: read_cursors(layout),
        layout.pop: lambda: check_pop_file(layout),
    }.items():
        _check_own(path, parse, findings)
    if identity_error is not None:
        code = SIZES if identity_error.code == SIZES else "CONFIG_BROKEN"
        what, fix = identity_error.message, identity_error.remedy
        findings.add(code, Severity.ERROR, layout.identity, what, fix)
    if not QueueEnds(layout).is_valid():
        what = "it cannot be parsed, so queues that lost their last files cannot be detected."
        file = layout.queue_ends
        findings.add("ENDS_DAMAGED", Severity.WARNING, file, what, _QUARANTINE_ENDS)


def _check_own(path: Path, parse: Callable[[], object], findings: Findings) -> None:
    try:
        parse()
    except StoreDamagedError as error:
        findings.add("CONFIG_BROKEN", Severity.ERROR, path, error.message, error.remedy)


def _is_folder(folder: Path, findings: Findings) -> bool:
    if folder.is_dir() or not folder.exists():
        return True
    what = "it is a file; a store has a folder there."
    findings.add("CONFIG_BROKEN", Severity.ERROR, folder, what, _RESTORE_FOLDER)
    return False


def _tables(layout: Layout) -> dict[Path, JsonTable[Any]]:
    """Return all tables by path, including tables of which only the backup exists."""
    folder = layout.config("x").parent
    known: dict[str, JsonTable[Any]] = {
        "consumerOffset.json": GroupOffsets(layout).table,
        "delayOffset.json": DelayOffsets(layout).table,
        "subscriptionGroup.json": Subscriptions(layout, lambda: 0).table,
        "topics.json": Topics(layout, lambda: 0).table,
    }
    names = {path.name.removesuffix(_BACKUP) for path in folder.glob("*.json*")}
    return {
        folder / name: known.get(name) or JsonTable(layout, name.removesuffix(".json"), _as_it_is)
        for name in sorted(names)
        if name.endswith(".json")
    }


def _as_it_is(content: Content) -> Content:
    """Accept any content of a table that only RocketMQ uses."""
    return content


def _check_table(path: Path, table: JsonTable[Any], findings: Findings) -> None:
    main, backup = table.faults()
    if main and not backup:
        what = f"it {main}. Its backup is valid."
        findings.add("CONFIG_FROM_BACKUP", Severity.WARNING, path, what, _USE_BACKUP)
    elif {main, backup} <= {EMPTY, MISSING}:
        for file, fault in ((path, main), (path.with_name(path.name + _BACKUP), backup)):
            if fault == EMPTY:
                findings.add("CONFIG_EMPTY", Severity.WARNING, file, "it is empty.", _BEGIN_EMPTY)
    elif main:
        what = f"it {main}, and its backup {backup}."
        findings.add("CONFIG_BROKEN", Severity.ERROR, path, what, BY_HAND)


def missing_topics(layout: Layout, queues: Iterable[Key]) -> list[TopicConfig]:
    """Return the topics that are missing in the table, or have too few queues there.

    `queues`: the queues with messages. If the table is missing or its backup is read, topics are
    also restored from `pyrocket/topics.json` and from messages, even those a broker has deleted.
    Raises StoreDamagedError.
    """
    topics = Topics(layout, lambda: 0)
    table, known = topics.table.read(), topics.all()
    missing = {name: known[name] for name in known if name not in table}
    if topics.table.faults()[0]:
        for name, remembered in topics.remembered().items():
            missing[name] = _larger(remembered, known.get(name, remembered))
        for name, count in _queue_counts(queues).items():
            if name not in table:
                missing.setdefault(name, TopicConfig(name, count, count))
    return [one for name, one in sorted(missing.items()) if entry_of(one) != table.get(name)]


def report_deleted(layout: Layout, queues: Iterable[Key], findings: Findings) -> None:
    """Report topics with messages that a valid table lacks. Raises StoreDamagedError."""
    topics = Topics(layout, lambda: 0)
    if topics.table.faults()[0]:
        return
    known, path = topics.all(), layout.config("topics")
    for name, count in _queue_counts(queues).items():
        if name not in known:
            what = f"the topic {name!r} is not in it, although the store has its messages: another"
            what += " program has deleted the topic, or the table is outdated."
            fix = "Nothing, if the topic was deleted; otherwise create it again with at least"
            fix += f" {count} queues: its messages still exist."
            findings.add("CONFIG_TOPIC_MISSING", Severity.NOTE, path, what, fix)


def _queue_counts(queues: Iterable[Key]) -> dict[str, int]:
    """Return the minimum number of queues of each topic, except RocketMQ's system topics."""
    counts: dict[str, int] = {}
    for name, queue_id in sorted(queues):
        if name not in CLOSED_TO_SENDERS and not name.startswith(SYSTEM_PREFIX):
            counts[name] = max(counts.get(name, 1), min(queue_id + 1, MAX_QUEUES))
    return counts


def report_missing_topics(layout: Layout, missing: list[TopicConfig], findings: Findings) -> None:
    """Report topics that are missing in the table, or have too few queues there."""
    known, path = Topics(layout, lambda: 0).all(), layout.config("topics")
    for topic in missing:
        severity = Severity.WARNING if topic.name in known else Severity.ERROR
        what = f"the topic {topic.name!r} is not in it"
        if topic.name in known:
            what += " as it is in pyrocket/topics.json."
        else:
            what += ", but it has messages or is in pyrocket/topics.json."
        counts = f"{topic.read_queues} read and {topic.write_queues} write queues"
        fix = repair(f"adds it with {counts}.")
        findings.add("CONFIG_TOPIC_MISSING", severity, path, what, fix)
    if missing and not path.parent.exists():
        what = "the folder with all tables is missing."
        findings.add("CONFIG_MISSING", Severity.ERROR, path.parent, what, _CREATE_FOLDER)


def check_offsets(
    topics: Mapping[str, TopicConfig],
    committed: Mapping[tuple[str, str], OffsetsByQueue],
    end_of: Callable[[str, int], int],
    findings: Findings,
) -> None:
    """Report committed offsets, by (topic, group), beyond the ends of their queues.

    An offset below the minimum is normal: cleaning raises the minimum.
    """
    for (name, group), offsets in sorted(committed.items()):
        if name not in topics or name in CLOSED_TO_SENDERS or name.startswith(SYSTEM_PREFIX):
            continue
        for queue_id, offset in sorted(offsets.items()):
            if not 0 <= queue_id < topics[name].read_queues:
                continue
            end = end_of(name, queue_id)
            if not 0 <= offset <= end:
                what = f"the group {group!r} has consumed queue {queue_id} of {name!r} up to"
                what += f" {offset}, but the queue ends at {end}."
                fix = f"Store.groups.reset({group!r}, {name!r}, 'latest') moves the group to the"
                fix += " ends of its queues, 'earliest' to the first messages."
                findings.add("GROUP_OFFSET", Severity.WARNING, _OFFSETS, what, fix)


def _larger(one: TopicConfig, other: TopicConfig) -> TopicConfig:
    reads = max(one.read_queues, other.read_queues)
    writes = max(one.write_queues, other.write_queues)
    return TopicConfig(one.name, reads, writes, one.perm, one.ordered)
