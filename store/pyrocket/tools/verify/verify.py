"""Checking a store: one pass over the log, no lock, nothing written.

Works on a store in use (what is published when it begins is looked at), on a copy, on one that Java
made and on a damaged one. Takes memory for one window of the log, and a little for each queue.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from pyrocket.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import linked, translating
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED, TIMER_QUEUE_OFFSET, TIMER_READ_TIME
from pyrocket.disk.tree import links_of
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.formats.index_file import Geometry
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange, LogCheck
from pyrocket.metadata.groups import GroupOffsets, Offsets
from pyrocket.metadata.identity import SealedLog, check_directory, identify, layout_of
from pyrocket.metadata.service_cursors import read_cursors
from pyrocket.metadata.topics import TopicConfig, Topics
from pyrocket.tools.verify.delays import DelayCheck, check_timers
from pyrocket.tools.verify.files import AnyRun, check_log_files, check_places, check_queue_files
from pyrocket.tools.verify.finding import KEPT_PER_CODE, Findings, Severity, after
from pyrocket.tools.verify.keys import KeyCheck, lag_of, report_geometry
from pyrocket.tools.verify.log import (
    lost_by_queues,
    lost_by_words,
    report_begin,
    report_end,
    report_log,
    report_lost,
)
from pyrocket.tools.verify.metadata import (
    check_config,
    check_offsets,
    missing_topics,
    report_deleted,
    report_missing,
)
from pyrocket.tools.verify.queues import Key, QueueCheck
from pyrocket.tools.verify.report import Report
from pyrocket.tools.verify.state import Before, check_checkpoint, check_left, read_checkpoint

_ATTEMPTS = 10

Progress = Callable[[int, int, str], None]
"""Told bytes done, bytes in all, and the file that is being looked at."""


@translating
def verify(
    path: str | PathLike[str],
    progress: Progress | None = None,
    *,
    most: int = KEPT_PER_CODE,
    config: StoreConfig | None = None,
) -> Report:
    """Look at everything in the directory; of findings with one code keep so many.

    `config` tells slots and items of an index of which nothing else does, and what the delay
    levels of a broker's store wait. Raises OptionError (DELAY_LEVELS), StoreNotFoundError,
    StorePermissionError, StoreUnavailableError.
    """
    layout = layout_of(path)
    check_directory(layout, create=False)
    if links := list(links_of(layout.root, everywhere=True)):
        return _with_links(layout, links)
    report, disturbed = None, None
    for _ in range(_ATTEMPTS):
        try:
            check = _Check(layout, config or StoreConfig(), progress or _quiet, most)
        except StoreDamagedError as error:
            return _unreadable(layout, error)
        try:
            report = check.run()
        except FileNotFoundError as error:
            disturbed = error
            continue
        # Files that came or went meanwhile look like damage, and so does what was written.
        if report.ok or not check.before.has_changed():
            return report
    if report is None:
        raise StoreUnavailableError(
            f"files of {layout.root} come and go all the time.",
            remedy="Try again when less is going on.",
            code="VERIFY_DISTURBED",
        ) from disturbed
    return report


def _quiet(done: int, total: int, file: str) -> None:
    """Tell nobody."""


class _Check:
    """One pass over one store."""

    def __init__(self, layout: Layout, config: StoreConfig, progress: Progress, most: int) -> None:
        self._layout, self._progress = layout, progress
        self._findings = Findings(most)
        self._done = self._total = 0
        self._identity, self._flaw = identify(layout, config)
        self._delays = DelayCheck(
            given=config.delay_levels is not None, known=self._identity.knows_levels
        )
        geometry = replace(config, delay_levels=None)
        self._told = (
            geometry != StoreConfig() and not identify(layout, StoreConfig())[0].knows_index
        )
        config = self._identity.config
        run = AnyRun(layout.commit_log, config.log_file_bytes, layout.scratch, writable=False)
        self._run, self._log = run, CommitLog(run, SealedLog(layout))
        self._queues = QueueTable(layout, config.queue_file_bytes, writable=False, run_type=AnyRun)
        self.before = Before(layout, self._identity)
        self._page, self._clean = self.before.page, self.before.clean
        self._lost: DamagedRange | None = None

    def run(self) -> Report:
        """Look at everything."""
        layout, findings = self._layout, self._findings
        checkpoint = read_checkpoint(layout)
        check_left(layout, findings)
        check_places(layout, findings)
        check_config(layout, findings, read_cursors, self._flaw)
        # Before the queues: they only grow.
        committed = self._committed()
        check_log_files(layout, self._run, findings)
        check_queue_files(layout, self._identity.config.queue_file_bytes, findings)
        report_begin(layout, self._run, findings)
        true = self._page is not None
        check_timers(layout, findings, self._timers_progress, state_is_valid=true)
        geometry, live = self._geometry(), not self._at_rest
        lag = lag_of(layout, self._identity)
        keys = KeyCheck(layout, geometry, findings, live=live, complete=self._clean, lag=lag)
        log, queues = self._look_at_messages(keys)
        if log.records and self._lost is None:
            check_checkpoint(checkpoint, log.last_stored, findings, clean=self._clean)
        missing = self._check_topics(queues.ends(), committed)
        report = Report(
            path=layout.root,
            findings=tuple(findings.kept),
            counts=dict(findings.counts),
            messages=log.records,
            entries=queues.entries,
            queues=len(self._queues.on_disk()),
            log_start=self._log.first_offset(),
            log_end=log.end,
            last_stored_ms=log.last_stored,
            bad_places=tuple(log.bad),
            queues_in_log=frozenset(queues.ends()),
            missing_topics=missing,
        )
        self._queues.close()
        self._run.close()
        if first := report.waits_for:
            return replace(report, findings=tuple(after(first, one) for one in report.findings))
        return report

    def _committed(self) -> Mapping[tuple[str, str], Offsets]:
        """Return what groups have consumed; nothing where that cannot be read: a finding tells."""
        with suppress(StoreDamagedError):
            return GroupOffsets(self._layout).all()
        return {}

    def _check_topics(
        self, ends: Mapping[Key, int], committed: Mapping[tuple[str, str], Offsets]
    ) -> tuple[TopicConfig, ...]:
        """Compare topics and groups with the queues, which end in the log at `ends`.

        Returns what the topic table lacks.
        """
        ended_at, queues = self._ended_at(), self._queues

        def end_of(topic: str, queue_id: int) -> int:
            end = max(ends.get((topic, queue_id), 0), ended_at(topic, queue_id))
            return max(end, queues.get(topic, queue_id).max_offset(WHOLE_LOG))

        with suppress(StoreDamagedError):
            there = {key for key in queues.on_disk() if queues.get(*key).run.starts()}
            there |= {key for key, end in ends.items() if end > ended_at(*key)}
            missing = missing_topics(self._layout, there)
            report_missing(self._layout, missing, self._findings)
            report_deleted(self._layout, there, self._findings)
            topics = Topics(self._layout, lambda: 0).all()
            check_offsets(topics, committed, end_of, self._findings)
            return tuple(missing)
        return ()

    def _timers_progress(self) -> tuple[int, int]:
        """Return how far timers are taken in and delivered; as saved where no words are true."""
        try:
            known = self._page.cursors() if self._page else read_cursors(self._layout)
        except StoreDamagedError:
            return 0, 0  # That is a finding of its own.
        return known.get(TIMER_QUEUE_OFFSET, 0), known.get(TIMER_READ_TIME, 0)

    def _geometry(self) -> Geometry | None:
        """Return the geometry of the index, None where nobody knows it, which is a finding."""
        config, known = self._identity.config, self._identity.knows_index
        if self._told or not known:
            report_geometry(self._findings, config, told=known)
        return Geometry(config.index_slots, config.index_items) if known else None

    @property
    def _at_rest(self) -> bool:
        """Whether nobody is changing the store, as far as can be told."""
        return self._page is None or self._clean

    def _look_at_messages(self, keys: KeyCheck) -> tuple[LogCheck, QueueCheck]:
        """Compare log, queues and key index in one pass over the log."""
        start, dispatched, published = self._bounds()
        if self._page is not None:
            self._lost = lost_by_words(self._run, published)
        there = self._lost.start if self._lost else published
        start = start if self._run.starts() else there
        self._total = there - start
        log = LogCheck(self._log, self._tell, end_is_known=self._page is not None)
        levels = self._identity.config.delay_levels_ms
        queues = QueueCheck(self._log, self._queues, self._ended_at(), levels, self._delays)
        for run in log.runs(start, min(dispatched, there)):
            queues.feed(run)
            keys.feed(run)
        for _ in log.runs(dispatched, there) if dispatched < there else ():
            pass
        if self._page is None and self._clean:
            self._lost = lost_by_queues(self._run, self._queues, log.end)
        log_start = self._log.first_offset()
        log.bad = [place for place in log.bad if place.end > log_start]
        at_rest, clean, lost = self._at_rest, self._clean, self._lost
        report_log(
            log,
            self._log,
            self._findings,
            looked_at_tail=at_rest,
            clean=clean,
            goes_on=lost is not None,
        )
        log_end = log.end if self._page is None else published
        if lost is None and self._page is None:
            report_end(self._layout, self._log, log.end, self._findings)
        if lost is not None:
            report_lost(self._run, lost, self._findings)
            log.bad.append(lost)
            log_end = lost.end
        queues.report(
            self._findings,
            log.bad,
            log_start=log_start,
            log_end=log_end if at_rest else min(dispatched, log_end),
            live=not at_rest,
        )
        keys.check_names()
        keys.report(log_end)
        return log, queues

    def _bounds(self) -> tuple[int, int, int]:
        """Return where the log begins, how far it is dispatched, and how far it goes at most."""
        starts = self._run.starts()
        start = starts[0] if starts else self._log.first_offset()
        if self._page is not None:
            dispatched = self._page[DISPATCHED]
            return start, dispatched, max(dispatched, self._page[PUBLISHED])
        end = starts[-1] + self._run.file_bytes if starts else start
        return start, end, end

    def _ended_at(self) -> Callable[[str, int], int]:
        topics, known = Topics(self._layout, lambda: 0), dict[tuple[str, int], int]()

        def ended_at(topic: str, queue_id: int) -> int:
            key = topic, queue_id
            if key not in known:
                try:
                    known[key] = topics.ended_at(topic, queue_id)
                except StoreDamagedError:
                    # Any queue may have been deleted: entries are missed once that is known.
                    known[key] = WHOLE_LOG
            return known[key]

        return ended_at

    def _tell(self, more: int, file: str) -> None:
        self._done += more
        self._progress(self._done, self._total, file)


def _unreadable(layout: Layout, error: StoreDamagedError) -> Report:
    """Return what is to be said of a store of which nothing tells how its log is cut into files."""
    findings = Findings()
    findings.add("LOG_FILE_LENGTH", Severity.ERROR, "commitlog", error.message, error.remedy)
    return _not_looked_at(layout, findings)


def _with_links(layout: Layout, links: list[Path]) -> Report:
    """Return what is to be said of a store with links in it: what they lead to is not looked at."""
    findings = Findings()
    for link in links:
        error, file = linked(link), str(link.relative_to(layout.root))
        findings.add(error.code, Severity.ERROR, file, error.message, error.remedy)
    return _not_looked_at(layout, findings)


def _not_looked_at(layout: Layout, findings: Findings) -> Report:
    kept, counts = tuple(findings.kept), dict(findings.counts)
    return Report(layout.root, kept, counts, 0, 0, 0, 0, 0, 0, (), frozenset(), ())
