"""The log's first and last files: whether those are there in which it begins and ends."""

from pyrocket.disk.layout import Layout, file_name
from pyrocket.index.queues.lost_files import lost_file
from pyrocket.index.queues.queue_table import Queues
from pyrocket.log.salvage import DamagedRange
from pyrocket.metadata.queue_ends import QueueEnds
from pyrocket.tools.verify.any_run import AnyRun
from pyrocket.tools.verify.finding import Findings, Severity, restore


def lost_by_words(run: AnyRun, published: int) -> DamagedRange | None:
    """Return what the words say of the log in last files that are missing."""
    starts, last = run.starts(), run.start_of(published)
    if published == last or last in starts:
        return None
    gone = starts[-1] + run.file_bytes if starts else last
    return DamagedRange(gone, published, "the file is missing.")


def lost_by_queues(run: AnyRun, queues: Queues, end: int) -> DamagedRange | None:
    """Return what the queues say of it, where the log ends at `end` as far as it is there.

    Only after a clean end: after any other they may be ahead of the log.
    """
    known = [queues.get(*key) for key in queues.on_disk()]
    gone = [start for queue in known if (start := lost_file(queue, run, end)) is not None]
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
