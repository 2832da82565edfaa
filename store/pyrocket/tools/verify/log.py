"""What is said of the log: where it is damaged or torn, and what that means for the next writer."""

from pyrocket.disk.layout import Layout, file_name
from pyrocket.index.queues.missing_files import missing_log_file
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange, LogCheck
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.tools.verify.files import AnyRun
from pyrocket.tools.verify.finding import Findings, Severity, repair, restore

_STEP_OVER = repair(
    "steps over it and keeps all other messages; these can only come from a backup of {}. Until"
    " then a writer that has to recover the store may refuse it (LOG_DAMAGED)."
)
_LEAVE = "Nothing, unless a backup of {} of before the damage can be put in its place."


def report_log(
    check: LogCheck,
    log: CommitLog,
    findings: Findings,
    *,
    looked_at_tail: bool,
    clean: bool,
    goes_on: bool,
) -> None:
    """Add what is wrong with the log to the findings; it `goes_on` in files that are missing."""
    damaged = [place for place in check.bad if goes_on or place.start < check.end]
    for place in damaged:
        name, at = _where(log, place.start)
        what = f"{place.end - place.start} bytes hold no whole record: {place.reason}"
        findings.add("LOG_DAMAGED", Severity.ERROR, name, what, _STEP_OVER.format(name), at)
    for place in check.placeholders:
        name, at = _where(log, place.start)
        what = f"{place.end - place.start} bytes: {place.reason}"
        findings.add("LOG_PLACEHOLDER", Severity.NOTE, name, what, _LEAVE.format(name), at)
    for place in check.bad[len(damaged) :]:
        _report_tail(findings, *_where(log, place.start), place.reason, clean=clean)
    if looked_at_tail and not goes_on and len(damaged) == len(check.bad):
        _report_behind(check, log, findings, clean=clean)


def report_end(layout: Layout, log: CommitLog, end: int, findings: Findings) -> None:
    """Note that the log ends before bytes that were durable."""
    durable = QueueEnds(layout).durable_end()
    if end < durable:
        what = f"the log ends at {end}, but it was durable until {durable}: {durable - end} bytes"
        what += " are missing."
        fix = repair(
            "goes on at the end of the log, and so does the next writer. Restore the store"
        )
        fix += " from a backup if there is a better one."
        name, at = _where(log, end)
        findings.add("LOG_ENDS_EARLY", Severity.ERROR, name, what, fix, at)


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
        fix += " So does opening the store for writing, which keeps a copy of whole records only."
    findings.add("LOG_TORN", severity, name, what, fix, at)


def lost_by_words(run: AnyRun, published: int) -> DamagedRange | None:
    """Return what the words say of the log in last files that are missing."""
    starts, last = run.starts(), run.start_of(published)
    if published == last or last in starts:
        return None
    gone = starts[-1] + run.file_bytes if starts else last
    return DamagedRange(gone, published, "the file is missing.")


def lost_by_queues(run: AnyRun, queues: QueueTable, end: int) -> DamagedRange | None:
    """Return what the queues say of it, where the log ends at `end` as far as it is there.

    Only after a clean end: after any other they may be ahead of the log.
    """
    known = [queues.get(*key) for key in queues.on_disk()]
    gone = [start for queue in known if (start := missing_log_file(queue, run, end)) is not None]
    ends = [last[0] + last[1] for queue in known if (last := queue.last_entry())]
    return DamagedRange(min(gone), max(ends), "the file is missing.") if gone else None


def report_lost(run: AnyRun, lost: DamagedRange, findings: Findings) -> None:
    """Name the first file that is missing."""
    file = f"commitlog/{file_name(run.start_of(lost.start))}"
    what = f"it is missing, but the log goes on until {lost.end}."
    findings.add("LOG_FILE_MISSING", Severity.ERROR, file, what, restore(file))


def report_begin(layout: Layout, run: AnyRun, findings: Findings) -> None:
    """Note that the log began earlier when that was noted: nobody can tell where that went."""
    noted, starts = QueueEnds(layout).read(), run.starts()
    if noted is not None and starts and 0 <= noted.log_start < starts[0]:
        what = (
            f"the log began at {noted.log_start} when it was noted last; since, files before this"
        )
        what += " one have been cleaned away, or lost."
        fix = "Nothing, if they were cleaned away; else restore them from a backup."
        file = f"commitlog/{file_name(starts[0])}"
        findings.add("LOG_BEGINS_LATER", Severity.NOTE, file, what, fix)
