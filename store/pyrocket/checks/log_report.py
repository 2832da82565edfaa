"""What is said of the log: where it is damaged or torn, and what that means for the next writer."""

from pyrocket.checks.finding import Findings, Severity, repair, restore
from pyrocket.checks.log import BadPlace, LogCheck
from pyrocket.disk.layout import Layout, file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.index.checkpointer import read_checkpoint
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.recovery import recovery_start


def report_log(
    check: LogCheck,
    log: CommitLog,
    findings: Findings,
    *,
    looked_at_tail: bool,
    clean: bool,
    goes_on: bool,
    layout: Layout,
) -> None:
    """Add what is wrong with the log to the findings; it `goes_on` in files that are missing."""
    damaged = [place for place in check.bad if goes_on or place.start < check.end]
    first = _first_refused(damaged, log) if clean and not goes_on else None
    for place in damaged:
        name, at = _where(log, place.start)
        what = f"{place.end - place.start} bytes hold no whole record: {place.reason}"
        refusal = _refusal(place, damaged, check, log, layout) if place is first else ""
        findings.add("LOG_DAMAGED", Severity.ERROR, name, what, restore(name) + refusal, at)
    for place in check.bad[len(damaged) :]:
        _report_tail(findings, *_where(log, place.start), place.reason, clean=clean)
    if looked_at_tail and not goes_on and len(damaged) == len(check.bad):
        _report_behind(check, log, findings, clean=clean)


def _first_refused(damaged: list[BadPlace], log: CommitLog) -> BadPlace | None:
    """Return the first place for which a recovery after a clean end refuses the store.

    None where it is refused for its files, whatever they hold.
    """
    if not damaged:
        return None
    try:
        log.run.check_whole()
        start = recovery_start(log, Checkpoint(), clean=True)
    except (FileNotFoundError, StoreDamagedError):
        return None
    return next((place for place in damaged if place.start >= start), None)


def _refusal(
    place: BadPlace, damaged: list[BadPlace], check: LogCheck, log: CommitLog, layout: Layout
) -> str:
    """Return what that means, and what a writer gives up that finds a file `abort`.

    It looks at less than after a clean end where the checkpoint vouches for the rest.
    """
    text = " Until then, a writer that has to recover the store refuses it (STORE_DAMAGED)."
    try:
        start = recovery_start(log, read_checkpoint(layout), clean=False)
    except (IsADirectoryError, StoreDamagedError):
        return text
    cut = next((one for one in damaged if one.start >= start), None)
    if cut is None:
        return (
            f"{text} To leave the damage where it is, make an empty file `abort` in the store: that"
            " writer then begins to look behind it."
        )
    where = "there" if cut is place else f"at {cut.start}"
    count = check.records - cut.before
    return (
        f"{text} To give up what follows instead, make an empty file `abort` in the store: that"
        f" writer then cuts the log {where}, and whole messages behind that are lost: {count}."
    )


def _report_behind(check: LogCheck, log: CommitLog, findings: Findings, *, clean: bool) -> None:
    first, last = check.tail()
    if last > first:
        what = "behind the last record there are bytes that are not zero."
        _report_tail(findings, *_where(log, first), what, clean=clean)


def _where(log: CommitLog, position: int) -> tuple[str, int]:
    """Return file and byte of a place in the log."""
    start = log.run.start_of(position)
    return f"commitlog/{file_name(start)}", position - start


def _report_tail(findings: Findings, name: str, at: int, what: str, *, clean: bool) -> None:
    severity = Severity.ERROR if clean else Severity.WARNING
    fix = repair("cuts the log there, and keeps a copy of what it cuts.")
    if not clean:
        fix += " So does opening the store for writing, without the copy."
    findings.add("LOG_TORN", severity, name, what, fix, at)
