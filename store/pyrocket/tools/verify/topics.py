"""The topic table has all topics, and groups' offsets lie in their queues."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyrocket.config import MAX_QUEUES
from pyrocket.disk.layout import Layout
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.metadata.groups import Offsets
from pyrocket.metadata.topics import TopicConfig, Topics, entry_of
from pyrocket.tools.verify.finding import Findings, Severity, repair

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
