"""Recovery: makes log, queues, key index, shared state and service cursors consistent.

A writer that opens the store decides under the write lock, by cheap checks
(`WriterSession.state_is_valid`, `queues_agree`), whether to recover it. "Clean" means that the last
shutdown was clean: there is no file `abort`, and the shared state records no failed fsync.

    what the writer finds                                      what is done
    ---------------------------------------------------------  -----------------------------------
    state valid in this boot, other writers present            join them: no recovery
        test_a_writer_that_joins_others_does_not_recover
    state valid in this boot, alone, queues agree              no recovery
        test_deleted_and_empty_topics_are_not_lost_queues
    state valid in this boot, alone, queues lack entries       recover, unclean
        test_lost_entries_are_rebuilt
    state valid in this boot, alone, the log continues         recover; clean if there is no `abort`
    after the state's end
        test_a_state_restored_from_an_older_copy_hides_no_messages
    next boot, clean, log and queues end as in the state       validate the state: no recovery
        test_after_a_clean_shutdown_the_next_boot_does_not_recover
    next boot, clean, but a queue or the log differs           recover, clean
        test_a_queue_that_lost_its_last_file_is_rebuilt
        test_a_log_that_continues_after_a_clean_shutdown_is_recovered
    next boot, `abort` present                                 recover, unclean
        test_an_unclean_shutdown_is_recovered_in_the_next_boot
        test_an_abort_file_takes_precedence_over_the_state
    a broker has used the store, or it is a copy               recover; clean if there is no `abort`
        test_a_broker_that_ran_after_a_clean_shutdown_is_detected
        test_a_copied_store_is_recovered_when_it_is_opened
    an fsync failed                                            drop cached pages, recover, unclean
        test_failed_fsync_stops_every_writer_until_recovery
    recovery is necessary, but other writers are present       refuse: STORE_NEEDS_RECOVERY
        test_recovery_waits_until_all_other_processes_have_closed_the_store

What a recovery does with the log depends on its files, on the end of its valid records, and on
which records are durable: after a clean shutdown all records, otherwise those before the end in
`ends.json` or stored before the checkpoint's time. A recovery that is refused changes nothing.

    what recovery finds                                        what is done
    ---------------------------------------------------------  -----------------------------------
    a log file missing between others, or of wrong length      refuse: STORE_FILE_MISSING, _LENGTH
        test_a_missing_log_file_is_always_reported
        test_a_log_file_of_wrong_length_is_reported
    a foreign file in a folder                                 refuse: STORE_FOREIGN_FILE
        test_foreign_file_in_the_log_stops_recovery
    clean, and a queue continues in a missing last log file    refuse: STORE_FILE_MISSING
        test_nothing_is_appended_to_a_log_with_missing_or_short_files
    empty files, or files of zeros, at the end of the log      delete them
        test_a_stray_next_file_of_zeros_is_deleted
    a record invalid, complete durable records after it        refuse: LOG_DAMAGED
        test_damage_before_the_durable_end_loses_no_other_message
        test_damage_in_the_middle_after_a_clean_shutdown_is_never_truncated
    a record invalid or torn, no durable record after it       truncate there, save the complete
                                                               records of the tail as `cut-…`,
                                                               start an epoch
        test_torn_tail_is_truncated_at_every_byte_of_the_last_record
        test_damage_after_the_durable_end_is_truncated_and_the_tail_is_saved
    the log ends before its durable end                        log an error, start an epoch
        test_missing_durable_bytes_are_logged_and_start_an_epoch
    queues missing, short, torn or ahead of the log            truncate, and dispatch the log again
        test_lost_entries_are_rebuilt
        test_queue_is_ahead_of_the_log
        test_tail_of_a_queue_is_garbage
    unclean                                                    start an epoch
        test_epochs_count_unclean_shutdowns_and_keep_the_lowest_truncation
    clean, no durable record missing                           start no epoch
        test_a_clean_shutdown_does_not_start_a_new_epoch
    an fsync fails                                             refuse, state FAILED: recover again
        test_failed_fsync_of_queues_is_not_a_clean_shutdown
    killed at any step                                         the next writer recovers again
        test_a_restarted_recovery_has_the_same_result
        test_a_power_loss_at_any_point_of_a_long_recovery_loses_no_durable_message

The shared state shows that a recovery is in progress or was killed. Readers wait for its end, or
return only durable messages if it was killed.

        test_a_reader_sees_complete_queues_before_and_after_a_recovery
        test_only_durable_messages_are_read_after_a_writer_was_killed_in_a_recovery

After the queues, each service makes its own files and cursors consistent (`RecoveryHooks`): timers
are indexed again, and cursors skip messages that have been delivered.

        test_messages_delivered_since_the_checkpoint_are_not_delivered_again
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    CHANGING,
    CHECKPOINT_TIME,
    DISPATCHED,
    FAILED,
    PUBLISHED,
    RESERVED,
    RESTED,
    STORE_TIME,
    STRUCTURE,
    SharedState,
    lock_identity,
)
from pyrocket.engine.hooks import Recovered, RecoveryHooks
from pyrocket.index.keys.index_builder import IndexBuilder
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import Dispatcher
from pyrocket.index.queues.rebuild import Evidence, expected_ends, recover
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import keep_tail
from pyrocket.log.valid_end import read_checkpoint
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.queue_ends import QueueEnds, SavedEnds
from pyrocket.metadata.service_cursors import restore_cursors, save_cursors
from pyrocket.metadata.topics import Topics

_YEAR_MS = 365 * 24 * 3_600_000
_LOOKED_THROUGH = 1 << 20
"""Maximum number of bytes of the log that are checked for missing queue entries."""


@dataclass(frozen=True)
class StoreParts:
    """The parts of a store that recovery, the checkpointer and the cleaner work on."""

    layout: Layout
    log: CommitLog
    queues: QueueTable
    dispatcher: Dispatcher
    keys: IndexBuilder
    page: SharedState
    topics: Topics
    hooks: RecoveryHooks
    follows: bool = False
    """Whether this is a replica, whose epochs are those of its primary."""

    def structure_changed(self) -> None:
        """Notify every reader that topics or files were created or deleted."""
        self.page[STRUCTURE] = self.page[STRUCTURE] + 1
        self.page[CHANGING] = 0

    @contextmanager
    def changing_topics(self) -> Iterator[None]:
        """Notify every reader and writer at the end of a change; requires the write lock.

        If the change fails or the process is killed, the next writer that takes the lock does.
        """
        self.page[CHANGING] = 1
        yield
        self.structure_changed()


def recover_alone(store: StoreParts, now_ms: int) -> None:
    """Recover the store, which the caller must hold exclusively.

    The caller must validate the shared state afterwards. Raises StoreDamagedError,
    StoreFailedError, StoreUnavailableError.
    """
    layout, log, queues, page = store.layout, store.log, store.queues, store.page
    saved, checkpoint = QueueEnds(layout).read(), read_checkpoint(layout)
    clean = not layout.abort.exists() and not page[FAILED]
    try:
        ranges = saved.ranges(log.first_offset()) if saved else {}
        evidence = Evidence(
            clean=clean,
            checkpoint=checkpoint,
            durable_end=QueueEnds(layout).durable_end(),
            topics={*store.topics.all(), *(topic for topic, _ in ranges)},
            ranges=ranges,
        )
        recovered = recover(
            *(log, store.dispatcher, page, evidence),
            before_change=partial(_begin, layout, page),
            before_cut=partial(keep_tail, log, layout.own, layout.scratch, now_ms),
        )
        if (not clean or recovered.missing) and not store.follows:
            ends = _with_empty_queues(store, recovered.ends)
            Epochs(layout).begin(ends)
            GroupOffsets(layout).truncate(ends)
        store.keys.after_recovery(clean=clean)
        restore_cursors(layout, page, queues)
        GroupStartFile(layout).truncate(page[PUBLISHED])
        for hook in store.hooks.after_recovery:
            hook(Recovered(log, queues, page, clean))
        QueueEnds(layout).save(queues, store.topics.ended_at, log.until(page[PUBLISHED]))
    except BaseException:
        # Readers must not wait for a recovery that has ended.
        if page.is_recovering():
            page.abandon_recovery()
        raise
    page[CHECKPOINT_TIME] = now_ms
    if page[STORE_TIME] > now_ms + _YEAR_MS:
        # No checksum covers a record's store time: a corrupt one must not raise the store times of
        # later records.
        page[STORE_TIME] = now_ms


def _with_empty_queues(
    store: StoreParts, ends: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Add to the ends of queues where those without files continue."""
    queues = (
        (topic.name, queue_id)
        for topic in store.topics.all().values()
        for queue_id in range(max(topic.read_queues, topic.write_queues))
    )
    empty = {key: store.dispatcher.next_offset(*key) for key in queues if key not in ends}
    return {**ends, **empty}


def _begin(layout: Layout, page: SharedState) -> None:
    page.invalidate(lock_identity(layout.lock))
    io.clear_directory(layout.scratch)


def save_progress(
    store: StoreParts,
    end: int,
    cursors: Mapping[int, int],
    changed: Collection[tuple[str, int]] | None,
) -> None:
    """Save the ends of queues and the services' cursors as of the durable log offset `end`.

    `changed` are the queues that have changed since the last call; None if unknown.
    """
    save_cursors(store.layout, cursors, store.hooks.before_cursor_save)
    ends, log = QueueEnds(store.layout), store.log.until(end)
    ends.save_changed(store.queues, store.topics.ended_at, log, changed)


def queues_agree(store: StoreParts) -> bool:
    """Returns whether the log ends at the shared state's end and the queues seem complete.

    The caller must hold the store lock exclusively. Takes about one stat per queue. After a writer
    was killed, the log after the last checkpoint is checked, too, unless that part is long. Raises
    StoreDamagedError if the log's last file is missing, because the queues must not be truncated
    then.
    """
    log, page = store.log, store.page
    log.check_holds(page[PUBLISHED])
    if page[RESERVED] == page[PUBLISHED] and log.continues_at(page[PUBLISHED]):
        return False  # The state is older than the log: the state was restored from a copy.
    ends, end = QueueEnds(store.layout), page[DISPATCHED]
    saved = ends.read()
    if saved is None:
        if page[RESTED] == end:
            return False
        saved = SavedEnds(log.first_offset())
    if 0 < end - saved.log_end <= _LOOKED_THROUGH:
        saved = saved.and_later(expected_ends(log, saved.log_end, end))
    until = log.until(end)
    return ends.are_reached(saved, store.topics.ended_at, store.queues.file_bytes, until)
