"""Reports damaged ranges, a torn end and missing files of the log."""

from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.missing_files import missing_log_file
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange, LogCheck, written_after
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.tools.verify.report import Findings, Severity, repair, restore

_STEP_OVER = repair(
    "skips it and keeps all other messages; only a backup of {} can restore the lost ones. Until"
    " then a writer that has to recover the store may refuse it (LOG_DAMAGED)."
)
_LEAVE = "Nothing, unless there is a backup of {} from before the damage: restore it."


def report_log(
    check: LogCheck,
    log: CommitLog,
    findings: Findings,
    *,
    tail_checked: bool,
    clean: bool,
    files_missing: bool,
) -> None:
    """Report damaged ranges and bytes after the last record.

    tail_checked: the bytes after the last record were also read.
    clean: the store was closed cleanly.
    files_missing: the log continues in files that are missing.
    """
    inside = [damaged for damaged in check.bad if files_missing or damaged.start < check.end]
    for damaged in inside:
        name, at = position_in(log.run, damaged.start)
        what = f"{damaged.end - damaged.start} bytes contain no complete record: {damaged.reason}"
        findings.add("LOG_DAMAGED", Severity.ERROR, name, what, _STEP_OVER.format(name), at)
    for damaged in check.placeholders:
        name, at = position_in(log.run, damaged.start)
        what = f"{damaged.end - damaged.start} bytes: {damaged.reason}"
        findings.add("LOG_PLACEHOLDER", Severity.NOTE, name, what, _LEAVE.format(name), at)
    for damaged in check.bad[len(inside) :]:
        _report_tail(log, damaged.start, damaged.reason, findings, clean=clean)
    if tail_checked and not files_missing and len(inside) == len(check.bad):
        first, last = written_after(log, check.end)
        if last > first:
            what = "there are bytes other than zero after the last record."
            _report_tail(log, first, what, findings, clean=clean)


def _report_tail(log: CommitLog, start: int, what: str, findings: Findings, *, clean: bool) -> None:
    severity = Severity.ERROR if clean else Severity.WARNING
    fix = repair("truncates the log there and keeps a copy of the removed bytes.")
    if not clean:
        fix += " Opening the store for writing does the same, but saves only complete records."
    name, at = position_in(log.run, start)
    findings.add("LOG_TORN", severity, name, what, fix, at)


def report_end(layout: Layout, log: CommitLog, end: int, findings: Findings) -> None:
    """Report a log that ends before its last saved durable end."""
    durable = QueueEnds(layout).durable_end()
    if end < durable:
        what = f"the log ends at {end}, but was durable up to {durable}: {durable - end} bytes"
        what += " are missing."
        fix = repair("continues at the end of the log, as does the next writer.")
        fix += " If there is a better backup, restore the store from it."
        name, at = position_in(log.run, end)
        findings.add("LOG_ENDS_EARLY", Severity.ERROR, name, what, fix, at)


def missing_by_state(run: FileQueue, published: int) -> DamagedRange | None:
    """Return the range of the missing files at the end of the log, up to `published`, or None."""
    starts, last = run.starts(), run.start_of(published)
    if published == last or last in starts:
        return None
    start = starts[-1] + run.file_bytes if starts else last
    return DamagedRange(start, published, "the file is missing.")


def missing_by_queues(run: FileQueue, queues: QueueTable, end: int) -> DamagedRange | None:
    """Return the range of missing log files after `end` to which queue entries point, or None.

    Only valid after a clean shutdown: after a crash, queues may be ahead of the log.
    """
    known = [queues.get(*key) for key in queues.on_disk()]
    starts = [start for queue in known if (start := missing_log_file(queue, run, end)) is not None]
    ends = [last[0] + last[1] for queue in known if (last := queue.last_entry())]
    return DamagedRange(min(starts), max(ends), "the file is missing.") if starts else None


def report_missing(run: FileQueue, missing: DamagedRange, findings: Findings) -> None:
    """Report the first file that is missing at the end of the log."""
    file, _ = position_in(run, missing.start)
    what = f"it is missing, but the log continues up to {missing.end}."
    findings.add("LOG_FILE_MISSING", Severity.ERROR, file, what, restore(file))


def report_begin(layout: Layout, run: FileQueue, findings: Findings) -> None:
    """Report a log whose start offset has increased since the last checkpoint."""
    saved, starts = QueueEnds(layout).read(), run.starts()
    if saved is not None and starts and 0 <= saved.log_start < starts[0]:
        what = (
            f"the log began at {saved.log_start} at the last checkpoint; since then files before"
            " this one have been deleted by cleaning, or lost."
        )
        fix = "Nothing, if cleaning deleted them; otherwise restore them from a backup."
        file, _ = position_in(run, starts[0])
        findings.add("LOG_BEGINS_LATER", Severity.NOTE, file, what, fix)


def position_in(run: FileQueue, offset: int) -> tuple[str, int]:
    """Return the file that contains a log offset, relative to the store, and the position in it."""
    start = run.start_of(offset)
    return f"commitlog/{file_name(start)}", offset - start
