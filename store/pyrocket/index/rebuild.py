"""Recovery: find the end of the log, cut what lies behind it, make the queues agree.

Runs alone, before anybody trusts the shared words, which it sets.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

from pyrocket.disk.file_run import FileRun
from pyrocket.disk.io import SyncError
from pyrocket.disk.layout import file_name
from pyrocket.disk.permission import raise_obstacle
from pyrocket.disk.state_page import (
    CHECKPOINTED,
    DISPATCHED,
    FAILED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    STRUCTURE,
    StatePage,
)
from pyrocket.disk.ways_out import way_out
from pyrocket.disk.whole_run import WholeRun
from pyrocket.errors import (
    REBUILD_QUEUES,
    StoreDamagedError,
    StoreFailedError,
    StoreUnavailableError,
)
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.index.density import Density
from pyrocket.index.dispatcher import WHOLE_LOG, Dispatcher
from pyrocket.index.lost_files import lost_file
from pyrocket.index.queues import Queues
from pyrocket.index.settling import settle_queue
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.recovery import (
    TRUSTED_WHOLLY,
    Dense,
    check_nothing_behind,
    dense_end,
    recovery_start,
    valid_end,
)
from pyrocket.log.walk import walk_all

QueueEnds = dict[tuple[str, int], int]

_STRUCTURES = 2**48
"""The word may hold anything after a boot; it only has to become another."""


def recover(
    log: CommitLog,
    queues: Queues,
    dispatcher: Dispatcher,
    page: StatePage,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    topics: Container[str],
    known: Mapping[tuple[str, int], range] | None = None,
) -> QueueEnds:
    """Make log, queues and words agree and durable; return where the queues end.

    `known` are the offsets that the files of queues are known to have reached from and to.
    Nothing is changed before the log is known to be sound but for its tail. Raises
    StoreDamagedError, StoreFailedError, StoreUnavailableError (WRITE_FAILED).
    """
    try:
        return _Recovery(
            log, queues, dispatcher, page, checkpoint, clean, topics, known or {}
        ).run()
    except SyncError as error:
        page[FAILED] = 1
        raise StoreFailedError(
            f"fsync failed during the recovery of {log.run.folder.parent}: {error}.",
            remedy="Check the disk and open it again.",
        ) from error
    except OSError as error:
        raise_obstacle(error)
        raise StoreUnavailableError(
            f"{log.run.folder.parent} could not be recovered: {error}. Nothing is lost by it.",
            remedy=way_out(error, "open it again"),
            code="WRITE_FAILED",
        ) from error


@dataclass(frozen=True)
class _Recovery:
    log: CommitLog
    queues: Queues
    dispatcher: Dispatcher
    page: StatePage
    checkpoint: Checkpoint
    clean: bool
    topics: Container[str]
    known: Mapping[tuple[str, int], range]

    def run(self) -> QueueEnds:
        if self.page[FAILED]:
            self._drop_cached()
        whole = WholeRun(self.log.run)
        try:
            start, end, stored = replace(self, log=CommitLog(whole)).checked()
        finally:
            whole.close()
        self.log.run.drop_empty_last()
        self._erase(end, stored)
        lost = self._cut_queues(start, end)
        first = self.log.first_offset()
        begin, end = self._complete_queues(first if lost else start, end)
        if begin > first and self._is_one_short():
            begin, end = self._complete_queues(first, end)
        self._drop_ended_queues()
        self.log.run.sync(start, end)
        for key in self.queues.on_disk():
            settle_queue(self.log, self.queues.get(*key), begin, end)
        self._set_words(end, stored, begin)
        return {key: self.dispatcher.next_offset(*key) for key in self.queues.on_disk()}

    def checked(self) -> tuple[int, int, int]:
        """Return where to begin, where the log ends and its last store time; changes no log file.

        Raises StoreDamagedError unless the log is sound but for its tail.
        """
        self.log.run.check_whole()
        self._check_queue_files()
        start = recovery_start(self.log, self.checkpoint, clean=self.clean)
        end, stored = valid_end(self.log, start, self._density(), self._trusted_ms)
        if self.clean:
            check_nothing_behind(self.log, end)
            self._check_no_entry_behind(end)
        return start, end, stored

    def _is_one_short(self) -> bool:
        """Whether a queue does not begin or end where it is known to have."""
        return any(
            self.dispatcher.next_offset(*key) < known.stop
            or self.queues.get(*key).first_entry(0) > known.start
            for key, known in self.known.items()
        )

    @property
    def _trusted_ms(self) -> int:
        """Records no younger than that were durable for sure."""
        return TRUSTED_WHOLLY if self.clean else self.checkpoint.safe_timestamp

    def _density(self) -> Dense:
        return Density(self.dispatcher.first_offset).follow

    def _runs(self) -> Iterator[FileRun]:
        """Yield the files of every queue."""
        for key in self.queues.on_disk():
            yield self.queues.get(*key).run

    def _drop_cached(self) -> None:
        """An fsync has failed: believe only what the disk holds."""
        for run in (self.log.run, *self._runs()):
            run.drop_cached()

    def _check_queue_files(self) -> None:
        for run in self._runs():
            run.drop_empty_last()
            run.check_lengths(REBUILD_QUEUES)

    def _check_no_entry_behind(self, end: int) -> None:
        """Raise StoreDamagedError if a queue has an entry for something behind the log's end.

        After a clean end queues and log agree, so it was a message, and what follows it may be.
        """
        for topic, queue_id in self.queues.on_disk():
            self._check_no_file_missing(self.queues.get(topic, queue_id), end)
            last = self.queues.get(topic, queue_id).last_entry()
            if last and last[0] + last[1] > end and self._is_written(*last):
                raise StoreDamagedError(
                    f"corrupt log: the record at {end} is damaged, but queue {queue_id} of"
                    f" {topic!r} goes on until {last[0]}.",
                    remedy="Restore the log from a backup; nothing has been changed. To give up"
                    " what follows the damage, make an empty file `abort` in the store.",
                )

    def _check_no_file_missing(self, queue: ConsumeQueue, end: int) -> None:
        """Raise StoreDamagedError if the queue goes on in the file that would be the log's next."""
        gone = lost_file(queue, self.log.run, end)
        if gone is None:
            return
        folder, name = self.log.run.folder, file_name(gone)
        is_there = (folder / name).exists()
        what = f"{folder / name} is empty" if is_there else f"{folder} lacks the file {name}"
        raise StoreDamagedError(
            f"{what}: queue {queue.queue_id} of {queue.topic!r} goes on in it.",
            remedy="Restore it from a backup; nothing has been changed. To give up what it"
            " held, make an empty file `abort` in the store.",
            code="STORE_FILE_MISSING",
        )

    def _is_written(self, offset: int, size: int) -> bool:
        if offset % self.log.file_bytes + size > self.log.file_bytes:
            return False
        try:
            return bool(self.log.read(offset, size).strip(b"\0"))
        except FileNotFoundError:
            return False

    def _erase(self, end: int, stored: int) -> None:
        files = self.log.run.starts()
        if files:
            self.log.erase(end, files[-1] + self.log.file_bytes)
        last = self.log.run.start_of(end - 1)
        if last in files and stored and not self.clean:
            self.log.run.set_time(last, stored)

    def _cut_queues(self, start: int, end: int) -> bool:
        """Cut them; return whether that took entries of messages before `start`."""
        # Pre-blank entries point at 0.
        bound = end if self.clean else max(start, 1)
        lost = False
        for key in self.queues.on_disk():
            queue = self.queues.get(*key)
            lost |= queue.has_behind_damage(bound, start)
            queue.cut(bound)
        return lost

    def _complete_queues(self, start: int, end: int) -> tuple[int, int]:
        """Write the entries of [start, end) anew; of the whole log where that leaves a gap.

        Returns where it began, and the log's end: a gap may be the log's own.
        """
        first = self.log.first_offset()
        if start > first and self.queues.on_disk():
            try:
                runs = walk_all(self.log, start, end)
                self.dispatcher.dispatch(runs, dispatched=start, complete=self.topics)
            except StoreDamagedError as error:
                if error.code != "QUEUE_GAP":
                    raise
            else:
                return start, end
        dense = end if start == first else self._dense_end(start, end)
        if dense < end:
            self._erase(dense, 0)
            self._cut_queues(start, dense)
        runs = walk_all(self.log, first, dense)
        self.dispatcher.dispatch(runs, dispatched=first, whole=True)
        return first, dense

    def _dense_end(self, start: int, end: int) -> int:
        trusted = {"trusted_end": start, "trusted_ms": self._trusted_ms}
        return dense_end(self.log, end, self._density(), **trusted)

    def _drop_ended_queues(self) -> None:
        """Remove the entries of queues that go on behind them.

        They are of messages that were deleted; their last ones may be missing, and offsets that
        readers have seen must not be given again.
        """
        for key in self.queues.on_disk():
            queue = self.queues.get(*key)
            if queue.max_offset(WHOLE_LOG) < self.dispatcher.first_offset(*key):
                queue.drop()

    def _set_words(self, end: int, stored: int, begin: int) -> None:
        page = self.page
        for word in (PUBLISHED, DISPATCHED, RESERVED, FLUSHED):
            page[word] = end
        page.forget_flushes()
        page[CHECKPOINTED] = begin
        page[STORE_TIME] = stored
        page[STRUCTURE] = (page[STRUCTURE] + 1) % _STRUCTURES
