"""`Store.sink`: batches of rows that become visible whole, once, whatever dies meanwhile.

Tasks stage their rows in files beside the log (`stage`), where nobody sees them. Whoever gathers
what the tasks return publishes it (`publish`): all rows of all topics become visible together,
durably, and a batch that comes again is known and dropped. What was published last, by whom, is in
the log itself (`services.sink_ledger`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from pyrocket.arguments import check_type, check_whole
from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import WRITE_FAILED, translating_methods, translating_os_errors
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.message_encoder import MessageEncoder, TopicRoute
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.errors import PLACEHOLDER, MessageError, RecordDamagedError
from pyrocket.formats.publish_record import SinkRecord, decode_sink_records
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.metadata.topics import check_topic_name
from pyrocket.services.sink.batch import FAIL, Published, PublishPolicy, SinkBatch, Staged
from pyrocket.services.sink.decision import Decisions
from pyrocket.services.sink.empty_batches import EmptyBatches
from pyrocket.services.sink.ledger import FORGET_AFTER_MS, SinkLedger
from pyrocket.services.sink.publisher import Publisher, record_of
from pyrocket.services.sink.stager import Stager
from pyrocket.services.sink.staging import Leftovers, StagingArea


@translating_methods
class Sink:
    """The exactly-once sink of one store. Staging works on a store that is open for reading."""

    def __init__(
        self,
        layout: Layout,
        reader: Reader,
        writing: Callable[[], Writer],
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._layout, self._reader, self._writing = layout, reader, writing
        self._config, self._clock = config, clock
        self._area = StagingArea(layout)
        self._outgoing = MessageEncoder(config, clock)
        self._ledger = SinkLedger(layout, self._ends, self._tail, clock)
        self._empty = EmptyBatches(layout, clock)

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
        """Return what takes the rows of one task, to be used in a `with` block."""
        check_type(SinkBatch, "Use a pyrocket.SinkBatch(identity=…).", batch=batch)
        check_whole("partition", partition)
        check_whole("attempt", attempt)
        return Stager(
            self._area,
            batch,
            (partition, attempt),
            self._reader.identity.store_id,
            self._outgoing,
            self._route,
            self._clock,
        )

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        *,
        on_difference: str = FAIL,
        on_gap: str = FAIL,
    ) -> Published:
        """Make all rows visible together, durably, unless the batch has been published before.

        In the order of `staged`. A batch without rows appends nothing, and a store that is open
        for reading will do; that it had none is noted. `on_difference` and `on_gap`: see
        `PublishPolicy`. Raises SinkError (SINK_FENCED, SINK_BATCH_BEHIND, SINK_BATCH_DIFFERS,
        SINK_BATCH_GAP, SINK_STORE_CHANGED, TOPIC_CHANGED, STAGED_BROKEN), OptionError,
        TopicNotFoundError, StoreNotSharedError, StoreLockedError, StoreUnavailableError; nothing
        is visible then, but for QUEUES_NOT_WRITTEN.
        """
        _check_staged(staged)
        check_type(SinkBatch, "Use a pyrocket.SinkBatch(identity=…).", batch=batch)
        policy = PublishPolicy(on_difference=on_difference, on_gap=on_gap)
        with_rows = [one for one in staged if one.rows]
        if not with_rows:
            published = self._publish_nothing(batch, policy)
            return replace(published, left_out=_left_out(staged))
        published = self._publisher().publish(batch, with_rows, policy)
        self._tidy_up(with_rows)
        return replace(published, left_out=_left_out(staged))

    def _publish_nothing(self, batch: SinkBatch, policy: PublishPolicy) -> Published:
        record = record_of(batch, [])
        decisions = self._decisions()
        decision = decisions.decide(record, policy)
        if record.run and not decision.drop:
            with translating_os_errors(self._layout.root, "try again", what=WRITE_FAILED):
                decisions.note_empty(record)
        decision.log()
        return Published(0, 0, decision.drop, self._reader.position().published)

    def publish_anonymous(self, staged: Sequence[Staged]) -> Published:
        """Make all rows visible together, durably; nobody will know them again. As `publish`."""
        _check_staged(staged)
        with_rows = [one for one in staged if one.rows]
        if not with_rows:
            return self._nothing(staged)
        published = self._publisher().publish_anonymous(with_rows)
        self._tidy_up(with_rows)
        self._area.remove_folder_of(with_rows[0].name)
        return replace(published, left_out=_left_out(staged))

    def _nothing(self, staged: Sequence[Staged]) -> Published:
        return Published(0, 0, False, self._reader.position().published, _left_out(staged))

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove what will not be published, as far as that can be done."""
        _check_staged(staged)
        for one in staged:
            if one.name and one.store == self._reader.identity.store_id:
                with suppress(OSError, ValueError):
                    self._area.remove(one.name)

    def last(self, identity: str, target: str) -> int | None:
        """Return the last batch with rows that was published, None without. Costs no turn."""
        known = self._ledger.last(SinkBatch(identity=identity, target=target, batch=0).key)
        return known.batch if known else None

    def clean_staging(self, *, dry_run: bool = False) -> Leftovers:
        """Remove staged files that are a week old; return how many, with `dry_run` all the same.

        Raises StorePermissionError, StoreUnavailableError (WRITE_FAILED).
        """
        if dry_run:
            return self._area.leftovers(self._clock())
        with translating_os_errors(self._layout.root, "try again"):
            return self._area.clean(self._clock(), at_once=True)

    def hook_into(self, hooks: Hooks) -> None:
        """Have what was published last saved before the log forgets it, and at clean ends.

        And what is left over removed, whether or not anything is published.
        """
        hooks.leftovers.append(self._remove_leftovers)
        hooks.before_removal.append(lambda _: self._ledger.save())
        hooks.before_clean_shutdown.append(self._ledger.save)
        hooks.before_clean_shutdown.append(
            lambda: self._empty.forget(self._clock() - FORGET_AFTER_MS)
        )
        hooks.before_clean_shutdown.append(self._empty.sync)

    def _publisher(self) -> Publisher:
        return Publisher(
            self._writing(),
            self._reader.topics,
            self._ledger,
            self._decisions(),
            self._area,
            self._outgoing.delays,
            self._clock,
            create_topics=self._config.auto_create_topics,
        )

    def _tidy_up(self, staged: Sequence[Staged]) -> None:
        """Let go of what was published, and of what was staged for it in vain.

        What cannot be removed now goes by its age.
        """
        with suppress(OSError):
            for one in staged:
                self._area.give_back(one.name)
            self._area.remove_up_to(staged[0].name)
            self._area.clean(self._clock())

    def _remove_leftovers(self, full: bool) -> None:
        self._area.clean(self._clock(), at_once=full)
        if full:
            self._area.remove_free()

    def _decisions(self) -> Decisions:
        store = self._reader.identity.store_id
        return Decisions(self._layout.root, store, self._ledger, self._empty)

    def _route(self, name: str) -> TopicRoute:
        """Return where rows of a topic go; one that is missing is made when they are published."""
        check_topic_name(name)
        known = self._reader.topics.all().get(name)
        if known is None:
            if not self._config.auto_create_topics:
                self._reader.topics.get(name)
            return TopicRoute(name, self._config.default_queues)
        if not known.writable:
            raise MessageError(f"topic {name!r} may not be written.", code="TOPIC_NOT_WRITABLE")
        return TopicRoute(name, known.write_queues)

    def _ends(self) -> tuple[int, int]:
        known = self._reader.system_offsets(SINK_TOPIC)
        return known.minimum, known.maximum

    def _tail(self, start: int, end: int) -> Iterator[SinkRecord | None]:
        """Yield the records [start, end) of the ledger's queue; None for a placeholder."""
        try:
            for record in self._records(start, end):
                yield record
                start += 1
        except RecordDamagedError as error:
            if PLACEHOLDER not in error.message:
                raise
            # It lies somewhere in a slice, which is read as a whole.
            if end - start == 1:
                yield None
                return
            middle = (start + end) // 2
            yield from self._tail(start, middle)
            yield from self._tail(middle, end)

    def _records(self, start: int, end: int) -> Iterator[SinkRecord]:
        for part in self._reader.records(SINK_TOPIC, 0, start, end):
            yield from decode_sink_records(part.records)


def _left_out(staged: Sequence[Staged]) -> int:
    return sum(one.left_out for one in staged)


def _check_staged(staged: Sequence[Staged]) -> None:
    check_type(Sequence, "Use a list of what `Stager.finish` returned.", staged=staged)
    for one in staged:
        check_type(Staged, "Use what `Stager.finish` returned.", staged=one)
