"""JSON files: RocketMQ's in `config/`, each with a backup, and ours.

Each is read by what the store reads it with, so that a sound one is one that the store can use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyrocket.config import MAX_QUEUES
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.groups import GroupOffsets, Offsets, Subscriptions
from pyrocket.metadata.json_table import BY_HAND, EMPTY, MISSING, Content, JsonTable
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.metadata.retention import RetentionFile
from pyrocket.metadata.service_cursors import DelayOffsets
from pyrocket.metadata.topics import TopicConfig, Topics, entry_of
from pyrocket.services.sink.ledger import check_ledger
from pyrocket.tools.verify.finding import Findings, Severity, repair
from pyrocket.tools.verify.report import SIZES

_BACKUP = ".bak"
_USE_BACKUP = repair("puts the backup in its place; brokers use that anyway.")
_BEGIN_EMPTY = repair(
    "moves it to pyrocket/quarantine: without a backup it counts as an empty table anyway. If there"
    " is a copy of it, restore that instead."
)
_ENDS_AWAY = repair("moves it to pyrocket/quarantine; it is made anew.")

Look = Callable[[Layout], object]
"""Reads a file; raises StoreDamagedError where that cannot be."""


def check_config(
    layout: Layout, findings: Findings, read_cursors: Look, flaw: StoreDamagedError | None
) -> None:
    """Look at all JSON files; `read_cursors` reads what the services have saved.

    `flaw` is what is wrong with `store.json`.
    """
    if _is_folder(layout.config("x").parent, findings):
        for path, table in _tables(layout).items():
            _check_table(layout, path, table, findings)
    if not _is_folder(layout.own, findings):
        return
    for path, look in {
        layout.topic_ids: lambda: Topics(layout, lambda: 0).remembered(),
        layout.epochs: lambda: Epochs(layout).current,
        layout.retention: lambda: RetentionFile(layout).read(),
        layout.sink_ledger: lambda: check_ledger(layout),
        layout.cursors: lambda: read_cursors(layout),
    }.items():
        _check_own(layout, path, look, findings)
    if flaw is not None:
        code = SIZES if flaw.code == SIZES else "CONFIG_BROKEN"
        file = str(layout.identity.relative_to(layout.root))
        findings.add(code, Severity.ERROR, file, flaw.message, flaw.remedy)
    if not QueueEnds(layout).is_valid():
        what = "it cannot be parsed: queues that lost their last files cannot be detected by it."
        file = str(layout.queue_ends.relative_to(layout.root))
        findings.add("ENDS_DAMAGED", Severity.WARNING, file, what, _ENDS_AWAY)


def _check_own(layout: Layout, path: Path, look: Callable[[], object], findings: Findings) -> None:
    """Have one of our files read; what that raises is a finding."""
    try:
        look()
    except StoreDamagedError as error:
        file = str(path.relative_to(layout.root))
        findings.add("CONFIG_BROKEN", Severity.ERROR, file, error.message, error.remedy)


def _is_folder(folder: Path, findings: Findings) -> bool:
    if folder.is_dir() or not folder.exists():
        return True
    fix = "Move it away, and restore the folder from a backup. Without one `pyrocket repair` then"
    fix += " puts back what it can: topics, but neither what groups have consumed nor running"
    fix += " queries' checkpoints."
    what = "it is a file; a store has a folder there."
    findings.add("CONFIG_BROKEN", Severity.ERROR, folder.name, what, fix)
    return False


def _tables(layout: Layout) -> dict[Path, JsonTable[Any]]:
    """Return the tables that there are, or were: of some there is only the backup."""
    folder = layout.config("x").parent
    known: dict[str, JsonTable[Any]] = {
        "consumerOffset.json": GroupOffsets(layout).table,
        "delayOffset.json": DelayOffsets(layout).table,
        "subscriptionGroup.json": Subscriptions(layout, lambda: 0).table,
        "topics.json": Topics(layout, lambda: 0).table,
    }
    names = {path.name.removesuffix(_BACKUP) for path in folder.glob("*.json*")}
    return {
        folder / name: known.get(name) or JsonTable(layout, name.removesuffix(".json"), _any)
        for name in sorted(names)
        if name.endswith(".json")
    }


def _any(content: Content) -> Content:
    """Take whatever is a table: this one only RocketMQ reads."""
    return content


def _check_table(layout: Layout, path: Path, table: JsonTable[Any], findings: Findings) -> None:
    (main, backup), file = table.faults(), str(path.relative_to(layout.root))
    if main and not backup:
        what = f"it {main}. Its backup is whole."
        findings.add("CONFIG_FROM_BACKUP", Severity.WARNING, file, what, _USE_BACKUP)
    elif {main, backup} <= {EMPTY, MISSING}:
        for name, fault in ((file, main), (file + _BACKUP, backup)):
            if fault == EMPTY:
                what = "it is empty."
                findings.add("CONFIG_EMPTY", Severity.WARNING, name, what, _BEGIN_EMPTY)
    elif main:
        what = f"it {main}, and its backup {backup}."
        findings.add("CONFIG_BROKEN", Severity.ERROR, file, what, BY_HAND)


_MAKE_AGAIN = repair(
    "makes it again and puts the topics into it. What groups have consumed no repair can bring"
    " back: if there is a copy of the folder, restore that instead."
)

_OFFSETS = "config/consumerOffset.json"
Key = tuple[str, int]


def missing_topics(layout: Layout, queues: Iterable[Key]) -> list[TopicConfig]:
    """Return what to put so that the table has all topics; `queues` are those with messages.

    A topic that a broker has deleted is not wanted back because we remember it or the log has
    messages of it, unless the table is gone or its backup is read, which is older. Raises
    StoreDamagedError.
    """
    topics = Topics(layout, lambda: 0)
    table, seen = topics.table.read(), topics.all()
    wanted = {name: seen[name] for name in seen if name not in table}
    if topics.table.faults()[0]:
        for name, known in topics.remembered().items():
            wanted[name] = _larger(known, seen.get(name, known))
        for name, count in _counts(queues).items():
            if name not in table:
                wanted.setdefault(name, TopicConfig(name, count, count))
    return [topic for name, topic in sorted(wanted.items()) if entry_of(topic) != table.get(name)]


def report_deleted(layout: Layout, queues: Iterable[Key], findings: Findings) -> None:
    """Add the topics that only messages tell of, where the table is sound. StoreDamagedError."""
    topics = Topics(layout, lambda: 0)
    if topics.table.faults()[0]:
        return
    seen = topics.all()
    for name, count in _counts(queues).items():
        if name not in seen:
            what = f"the topic {name!r} is not in it, though the store has messages of it: another"
            what += " program has deleted it, or the table is an old one."
            fix = "Nothing, if it was deleted; else create it again, with at least"
            fix += f" {count} queues: its messages are there."
            file = str(layout.config("topics").relative_to(layout.root))
            findings.add("CONFIG_TOPIC_MISSING", Severity.NOTE, file, what, fix)


def _counts(queues: Iterable[Key]) -> dict[str, int]:
    """Return how many queues each topic has at least; none of RocketMQ's own."""
    counts: dict[str, int] = {}
    for name, queue_id in sorted(queues):
        if name not in CLOSED_TO_SENDERS and not name.startswith(SYSTEM_PREFIX):
            counts[name] = max(counts.get(name, 1), min(queue_id + 1, MAX_QUEUES))
    return counts


def report_missing(layout: Layout, missing: Sequence[TopicConfig], findings: Findings) -> None:
    """Add that the table lacks these topics, or some of their queues."""
    seen = Topics(layout, lambda: 0).all()
    path = layout.config("topics")
    file = str(path.relative_to(layout.root))
    for topic in missing:
        known = seen.get(topic.name)
        severity = Severity.WARNING if known else Severity.ERROR
        what = f"the topic {topic.name!r} is not in it"
        if known is None:
            what += ", but its messages or pyrocket/topics.json tell of it."
        else:
            what += " as pyrocket/topics.json remembers it."
        counts = f"{topic.read_queues} read and {topic.write_queues} write queues"
        fix = repair(f"puts it in, with {counts}.")
        findings.add("CONFIG_TOPIC_MISSING", severity, file, what, fix)
    if missing and not path.parent.exists():
        what = "the folder is missing, and with it all tables."
        findings.add("CONFIG_MISSING", Severity.ERROR, path.parent.name, what, _MAKE_AGAIN)


def check_offsets(
    topics: Mapping[str, TopicConfig],
    committed: Mapping[tuple[str, str], Offsets],
    end_of: Callable[[str, int], int],
    findings: Findings,
) -> None:
    """Look for offsets of groups, by (topic, group), that their queues have not come to yet.

    Below the queue's first one is fine: cleaning moves that.
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
    return TopicConfig(one.name, reads, max(one.write_queues, other.write_queues), one.perm)
