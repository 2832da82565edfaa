"""Checks an entire store in one pass over the log, without a lock and without writing.

Works on copies, damaged stores, stores of RocketMQ brokers, and stores in use. In a store in use,
it checks the messages published before the check. It needs memory for one window of the log, and a
little for each queue.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from pyrocket.base.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import linked, translating
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED, TIMER_QUEUE_OFFSET, TIMER_READ_TIME
from pyrocket.disk.tree import links_of
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.formats.index_file import Geometry
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange, LogCheck
from pyrocket.metadata.groups import GroupOffsets, OffsetsByQueue
from pyrocket.metadata.identity import SealedLog, check_directory, identify, layout_of
from pyrocket.metadata.service_cursors import read_cursors
from pyrocket.metadata.topics import Topics
from pyrocket.tools.verify.delays import DelayCheck, check_timers
from pyrocket.tools.verify.files import (
    TolerantFileQueue,
    check_kinds,
    check_log_files,
    check_queue_files,
)
from pyrocket.tools.verify.keys import KeyCheck, report_geometry
from pyrocket.tools.verify.log import (
    missing_by_queues,
    missing_by_state,
    report_begin,
    report_end,
    report_log,
    report_missing,
)
from pyrocket.tools.verify.metadata import (
    Key,
    check_config,
    check_offsets,
    missing_topics,
    report_deleted,
    report_missing_topics,
)
from pyrocket.tools.verify.queues import QueueCheck
from pyrocket.tools.verify.report import KEPT_PER_CODE, Findings, Report, Severity, after
from pyrocket.tools.verify.state import (
    Observed,
    check_checkpoint,
    check_state,
    index_lag_severity,
    read_checkpoint,
)
from pyrocket.values.admin import TopicConfig

_MAX_ATTEMPTS = 10

CheckProgress = Callable[[int, int, str], None]
"""Called with the checked bytes of the log, the total bytes, and the current file."""


@translating
def verify(
    path: str | PathLike[str],
    progress: CheckProgress | None = None,
    *,
    most: int = KEPT_PER_CODE,
    config: StoreConfig | None = None,
) -> Report:
    """Check everything in the directory; return the first `most` findings of each code.

    `config` gives the slots and items of index files if the store does not record them, and the
    delay levels of a broker. Raises OptionError (DELAY_LEVELS), StoreNotFoundError,
    StorePermissionError, StoreUnavailableError.
    """
    layout = layout_of(path)
    check_directory(layout, create=False)
    if links := list(links_of(layout.root, everywhere=True)):
        return _only(layout, {link: linked(link) for link in links})
    report, disturbed = None, None
    for _ in range(_MAX_ATTEMPTS):
        try:
            check = _Check(layout, config or StoreConfig(), progress or (lambda *_: None), most)
        except StoreDamagedError as error:
            # The size of the files of the log is unknown.
            return _only(layout, {layout.commit_log: error}, "LOG_FILE_LENGTH")
        try:
            report = check.run()
        except FileNotFoundError as error:
            disturbed = error
            continue
        # Changes during a check (files created or deleted, appends) look like damage.
        if report.ok or not check.observed.has_changed():
            return report
    if report is None:
        raise StoreUnavailableError(
            f"files of {layout.root} are being created and deleted continuously.",
            remedy="Try again when the store is less busy.",
            code="VERIFY_DISTURBED",
        ) from disturbed
    return report


class _Check:
    """One pass over one store."""

    def __init__(
        self, layout: Layout, config: StoreConfig, progress: CheckProgress, most: int
    ) -> None:
        self._layout, self._progress = layout, progress
        self._findings = Findings(layout.root, most)
        self._done = self._total = 0
        self._identity, self._identity_error = identify(layout, config)
        self._delays = DelayCheck(
            levels_given=config.delay_levels is not None, levels_known=self._identity.knows_levels
        )
        self._only_caller_knows_index = (
            replace(config, delay_levels=None) != StoreConfig()
            and not identify(layout, StoreConfig())[0].knows_index
        )
        config = self._identity.config
        self._run = TolerantFileQueue(
            layout.commit_log, config.log_file_bytes, layout.scratch, writable=False
        )
        self._log = CommitLog(self._run, SealedLog(layout))
        self._queues = QueueTable(
            layout, config.queue_file_bytes, writable=False, run_type=TolerantFileQueue
        )
        self.observed = Observed(layout, self._identity)
        self._state, self._clean = self.observed.state, self.observed.clean
        self._missing: DamagedRange | None = None

    def run(self) -> Report:
        layout, findings = self._layout, self._findings
        checkpoint = read_checkpoint(layout)
        check_state(layout, findings)
        check_kinds(layout, findings)
        check_config(layout, findings, self._identity_error)
        # Read before the queues, whose ends only grow.
        committed = self._committed()
        check_log_files(self._run, findings)
        check_queue_files(layout, self._identity.config.queue_file_bytes, findings)
        report_begin(layout, self._run, findings)
        check_timers(layout, findings, self._timer_cursors, has_state=self._state is not None)
        log, queues = self._check_messages(self._key_check())
        if log.records and self._missing is None:
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
            damaged_ranges=tuple(log.bad),
            queues_in_log=frozenset(queues.ends()),
            missing_topics=missing,
        )
        self._queues.close()
        self._run.close()
        if first := report.prerequisite:
            return replace(report, findings=tuple(after(first, fault) for fault in report.findings))
        return report

    def _committed(self) -> Mapping[tuple[str, str], OffsetsByQueue]:
        with suppress(StoreDamagedError):  # A finding of `check_config`.
            return GroupOffsets(self._layout).all()
        return {}

    def _check_topics(
        self, ends: Mapping[Key, int], committed: Mapping[tuple[str, str], OffsetsByQueue]
    ) -> tuple[TopicConfig, ...]:
        """Compare topics and groups with the queues; `ends` are the queues' ends in the log.

        Returns the topics that are missing in the table.
        """
        ended_at, queues = self._ended_at(), self._queues

        def end_of(topic: str, queue_id: int) -> int:
            end = max(ends.get((topic, queue_id), 0), ended_at(topic, queue_id))
            return max(end, queues.get(topic, queue_id).max_offset(WHOLE_LOG))

        with suppress(StoreDamagedError):  # A finding of `check_config`.
            with_messages = {key for key in queues.on_disk() if queues.get(*key).run.starts()}
            with_messages |= {key for key, end in ends.items() if end > ended_at(*key)}
            missing = missing_topics(self._layout, with_messages)
            report_missing_topics(self._layout, missing, self._findings)
            report_deleted(self._layout, with_messages, self._findings)
            topics = Topics(self._layout, lambda: 0).all()
            check_offsets(topics, committed, end_of, self._findings)
            return tuple(missing)
        return ()

    def _timer_cursors(self) -> tuple[int, int]:
        """Return the timer cursors from the shared state, or the saved ones if it is invalid."""
        try:
            known = self._state.cursors() if self._state else read_cursors(self._layout)
        except StoreDamagedError:
            return 0, 0  # A finding of `check_config`.
        return known.get(TIMER_QUEUE_OFFSET, 0), known.get(TIMER_READ_TIME, 0)

    def _key_check(self) -> KeyCheck:
        config, known = self._identity.config, self._identity.knows_index
        if self._only_caller_knows_index or not known:
            report_geometry(self._findings, config, given=known)
        return KeyCheck(
            self._layout,
            self._log,
            Geometry(config.index_slots, config.index_items) if known else None,
            self._findings,
            live=not self.observed.at_rest,
            complete=self._clean,
            lag=index_lag_severity(self._layout, self._identity),
        )

    def _check_messages(self, keys: KeyCheck) -> tuple[LogCheck, QueueCheck]:
        """Compare log, queues and key index in one pass over the log."""
        start, dispatched, published = self._bounds()
        if self._state is not None:
            self._missing = missing_by_state(self._run, published)
        end = self._missing.start if self._missing else published
        start = start if self._run.starts() else end
        self._total = end - start
        log = LogCheck(self._log, self._advance, end_is_known=self._state is not None)
        levels = self._identity.config.delay_levels_ms
        queues = QueueCheck(self._log, self._queues, self._ended_at(), levels, self._delays)
        for run in log.runs(start, min(dispatched, end)):
            queues.feed(run)
            keys.feed(run)
        for _ in log.runs(dispatched, end) if dispatched < end else ():
            pass
        if self._state is None and self._clean:
            self._missing = missing_by_queues(self._run, self._queues, log.end)
        log_start = self._log.first_offset()
        log.bad = [damaged for damaged in log.bad if damaged.end > log_start]
        log_end = self._report_log(log, published)
        at_rest = self.observed.at_rest
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

    def _report_log(self, log: LogCheck, published: int) -> int:
        """Report errors of the log; return its end offset, including missing files."""
        missing, findings = self._missing, self._findings
        report_log(
            log,
            self._log,
            findings,
            tail_checked=self.observed.at_rest,
            clean=self._clean,
            files_missing=missing is not None,
        )
        if missing is not None:
            report_missing(self._run, missing, findings)
            log.bad.append(missing)
            return missing.end
        if self._state is not None:
            return published
        report_end(self._layout, self._log, log.end, findings)
        return log.end

    def _bounds(self) -> tuple[int, int, int]:
        """Return the log's start offset, dispatched offset and maximum end offset."""
        starts = self._run.starts()
        start = starts[0] if starts else self._log.first_offset()
        if self._state is not None:
            dispatched = self._state[DISPATCHED]
            return start, dispatched, max(dispatched, self._state[PUBLISHED])
        end = starts[-1] + self._run.file_bytes if starts else start
        return start, end, end

    def _ended_at(self) -> Callable[[str, int], int]:
        topics, known = Topics(self._layout, lambda: 0), dict[Key, int]()

        def ended_at(topic: str, queue_id: int) -> int:
            key = topic, queue_id
            if key not in known:
                try:
                    known[key] = topics.ended_at(topic, queue_id)
                except StoreDamagedError:
                    # Any queue may have been deleted, so no entry is reported as missing.
                    known[key] = WHOLE_LOG
            return known[key]

        return ended_at

    def _advance(self, more: int, file: str) -> None:
        self._done += more
        self._progress(self._done, self._total, file)


def _only(layout: Layout, errors: Mapping[Path, StoreDamagedError], code: str = "") -> Report:
    """Return the report of a store of which nothing else is checked."""
    findings = Findings(layout.root)
    for path, error in errors.items():
        findings.add(code or error.code, Severity.ERROR, path, error.message, error.remedy)
    return Report(layout.root, tuple(findings.kept), dict(findings.counts))
