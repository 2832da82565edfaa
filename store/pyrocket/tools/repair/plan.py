"""Plans a repair: turns findings into actions, in the order in which they are taken."""

from dataclasses import dataclass

from pyrocket.tools.verify.keys import NO_TAGS
from pyrocket.tools.verify.report import Finding, Report, Severity

QUARANTINE, CONFIG, TOPICS, LENGTH = "quarantine", "config", "topics", "length"
STEP_OVER, CUT, QUEUES, KEYS = "step over", "cut", "queues", "keys"
TIMERS, RECOVER = "timers", "settle"
_KINDS = {
    "FOREIGN_FILE": QUARANTINE,
    "CONFIG_EMPTY": QUARANTINE,
    "ENDS_": QUARANTINE,
    "CONFIG_FROM_BACKUP": CONFIG,
    "CONFIG_TOPIC_": TOPICS,
    "CONFIG_MISSING": TOPICS,
    "LOG_FILE_LENGTH": LENGTH,
    "LOG_DAMAGED": STEP_OVER,
    "LOG_QUEUE_": STEP_OVER,
    "LOG_TORN": CUT,
    "KEY_INDEX": KEYS,
    "QUEUE_": QUEUES,
    "TIMERS_": TIMERS,
    "CHECKPOINT_": RECOVER,
    "INDEX_GEOMETRY": RECOVER,
    "LOG_ENDS_EARLY": RECOVER,
    "NOT_": RECOVER,
    "STATE_": RECOVER,
}
"""Prefix of finding codes → kind of action, in the order in which the actions are taken."""

_OF_LOG = ("LOG_DAMAGED", "LOG_QUEUE_")

_NEEDS_LOG = (LENGTH, STEP_OVER, CUT, QUEUES, KEYS, TIMERS, RECOVER)
"""Kinds of actions that need all files of the log, readable tables and a readable `store.json`."""


@dataclass(frozen=True)
class Action:
    """One action: its kind, the affected file or queue, and a description for the user."""

    kind: str
    subject: str
    what: str


def plan_repair(report: Report, *, cut: bool = False) -> tuple[Action, ...]:
    """Return the actions for the findings, in order.

    With `cut`, a damaged log is truncated at its first damaged range; otherwise placeholders are
    written over the damage.
    """
    actions: dict[Action, None] = {}
    for prefix, kind in _KINDS.items():
        if kind in _NEEDS_LOG and report.prerequisite:
            continue
        for finding in report.findings:
            if finding.code.startswith(prefix) and (finding.repairable or prefix == "NOT_"):
                chosen = CUT if kind == STEP_OVER and cut and report.first_damage else kind
                actions[_action(chosen, finding, report, cut=cut)] = None
    return tuple(actions)


def _action(kind: str, finding: Finding, report: Report, *, cut: bool) -> Action:
    file = finding.file
    if kind == QUEUES:
        file = "/".join(file.split("/")[1:3])
    damage = report.first_damage if cut else None
    end = damage.start if damage else report.log_end
    cost = f"which removes {report.messages - damage.before} complete messages, " if damage else ""
    names = ", ".join(topic.name for topic in report.missing_topics)
    texts = {
        QUARANTINE: f"move {file} to pyrocket/quarantine",
        CONFIG: f"replace {file} by {file}.bak",
        TOPICS: f"add the missing topics to config/topics.json: {names}",
        LENGTH: f"extend {file} to its full length",
        STEP_OVER: "write placeholders over the damaged bytes of the log, after copying them to"
        " pyrocket/quarantine; reads of these messages still fail, all other messages are kept",
        CUT: f"truncate the log at {end}, {cost}keeping the removed bytes in pyrocket/cut-…",
        QUEUES: f"rebuild the queue {file} from the log",
        KEYS: f"rebuild the key index from the log, {NO_TAGS}",
        TIMERS: "rebuild the timer index from the log",
        RECOVER: "recover the store as the next writer would, and close it cleanly",
    }
    subject = "" if kind in (TOPICS, STEP_OVER, KEYS, RECOVER) else file
    return Action(kind, str(end) if kind == CUT else subject, texts[kind])


def is_beyond_repair(report: Report) -> bool:
    """Return whether the store still cannot be opened for writing."""
    return any(
        finding.severity is Severity.ERROR
        and (not finding.repairable or finding.code.startswith(_OF_LOG))
        for finding in report.findings
    )
