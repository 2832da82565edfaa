"""What is to be done about findings, in order."""

from dataclasses import dataclass

from pyrocket.log.salvage import DamagedRange
from pyrocket.tools.verify.finding import Finding, Severity
from pyrocket.tools.verify.keys import NO_TAGS
from pyrocket.tools.verify.report import Report

QUARANTINE, CONFIG, TOPICS, LENGTH, STEP_OVER, CUT, QUEUES, KEYS, TIMERS, SETTLE = (
    "quarantine",
    "config",
    "topics",
    "length",
    "step over",
    "cut",
    "queues",
    "keys",
    "timers",
    "settle",
)
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
    "CHECKPOINT_": SETTLE,
    "INDEX_GEOMETRY": SETTLE,
    "LOG_ENDS_EARLY": SETTLE,
    "NOT_": SETTLE,
    "STATE_": SETTLE,
}
"""What is done about findings whose codes begin so, in the order in which it is done."""

_OF_LOG = ("LOG_DAMAGED", "LOG_QUEUE_")

_NEEDS_LOG = (LENGTH, STEP_OVER, CUT, QUEUES, KEYS, TIMERS, SETTLE)
"""What cannot be done while the log lacks messages, or tables or `store.json` cannot be read."""


@dataclass(frozen=True)
class Action:
    """One thing to do: its kind, what it is about, and how to say it."""

    kind: str
    subject: str
    what: str


def plan_repair(report: Report, *, cut: bool = False) -> tuple[Action, ...]:
    """Return what is to be done about the findings, in order.

    With `cut` a log is cut at its first damaged place, and not stepped over.
    """
    actions: dict[Action, None] = {}
    for prefix, kind in _KINDS.items():
        if kind in _NEEDS_LOG and report.waits_for:
            continue
        for finding in report.findings:
            if finding.code.startswith(prefix) and (finding.mendable or prefix == "NOT_"):
                chosen = CUT if kind == STEP_OVER and cut and report.first_hole else kind
                actions[_action(chosen, finding, report, cut=cut)] = None
    return tuple(actions)


def _action(kind: str, finding: Finding, report: Report, *, cut: bool) -> Action:
    file = finding.file
    if kind == QUEUES:
        file = "/".join(file.split("/")[1:3])
    hole = report.first_hole if cut else None
    end = hole.start if hole else report.log_end
    texts = {
        QUARANTINE: f"move {file} to pyrocket/quarantine",
        CONFIG: f"put {file}.bak in the place of {file}",
        TOPICS: f"put into config/topics.json what it lacks: {_names(report)}",
        LENGTH: f"give {file} its full length",
        STEP_OVER: "put placeholders over the damaged bytes of the log, of which a copy goes to"
        " pyrocket/quarantine; reads of these messages go on failing, all others are kept",
        CUT: f"cut the log at {end}, {_removed(report, hole)}keeping what is cut in pyrocket/cut-…",
        QUEUES: f"rebuild the queue {file} from the log",
        KEYS: f"rebuild the key index from the log, {NO_TAGS}",
        TIMERS: "build the index of timers anew from the log",
        SETTLE: "recover the store as the next writer would, and close it cleanly",
    }
    subject = "" if kind in (TOPICS, STEP_OVER, KEYS, SETTLE) else file
    return Action(kind, str(end) if kind == CUT else subject, texts[kind])


def _removed(report: Report, hole: DamagedRange | None) -> str:
    """Say how many whole messages go with a cut."""
    return f"which removes {report.messages - hole.before} whole messages, " if hole else ""


def _names(report: Report) -> str:
    return ", ".join(topic.name for topic in report.missing_topics)


def is_beyond_repair(report: Report) -> bool:
    """Whether something is left that keeps the store from being opened for writing."""
    return any(
        finding.severity is Severity.ERROR
        and (not finding.mendable or finding.code.startswith(_OF_LOG))
        for finding in report.findings
    )
