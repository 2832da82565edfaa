"""`Store.sink`: stages and publishes batches of rows; see `pyrocket.services.sink`."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pyrocket.base.arguments import check_type, check_whole
from pyrocket.disk.os_errors import WRITE_FAILED, translating_methods, translating_os_errors
from pyrocket.engine.engine import Engine, lazy_property
from pyrocket.engine.hooks import Hooks
from pyrocket.services.sink.batch import PublishPolicy, SinkBatch
from pyrocket.services.sink.decision import Decisions
from pyrocket.services.sink.empty_batches import EmptyBatches
from pyrocket.services.sink.ledger import FORGET_AFTER_MS, SinkLedger
from pyrocket.services.sink.publisher import Publisher, publish_record
from pyrocket.services.sink.staging import Leftovers, Stager, StagingArea, StoreStaging
from pyrocket.services.sink.uploads import Uploads
from pyrocket.values.sink import FAIL, Published, Staged


@translating_methods
class Sink:
    """The exactly-once sink of one store. Staging also works on a read-only store."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._layout, self._clock = engine, engine.layout, engine.clock
        self._area = StagingArea(engine.layout)

    @lazy_property
    def _ledger(self) -> SinkLedger:
        return SinkLedger(self._layout, self._engine.reader, self._clock)

    @lazy_property
    def _empty(self) -> EmptyBatches:
        return EmptyBatches(self._layout, self._clock)

    @lazy_property
    def uploads(self) -> Uploads:
        """Stages the records of a broker's clients."""
        return Uploads(self._area, self._clock)

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
        """Return a `Stager` for the rows of one task, to be used in a `with` block."""
        check_type(SinkBatch, "Use a pyrocket.SinkBatch(identity=…).", batch=batch)
        check_whole("partition", partition)
        check_whole("attempt", attempt)
        place = StoreStaging(self._engine, self._area)
        return Stager(place, self._engine.encoder, batch, (partition, attempt))

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        *,
        on_difference: str = FAIL,
        on_gap: str = FAIL,
        create_topics: bool | None = None,
        uploaded: bool = False,
    ) -> Published:
        """Publish all rows together, durably, unless the batch was published before.

        The rows keep the order of `staged`. A batch without rows is recorded without an append, and
        also works on a read-only store. `on_difference`, `on_gap`: see `PublishPolicy`.
        `create_topics`: whether missing topics are created; the default is the store's setting.
        `uploaded`: whether clients of a broker have staged the rows, so that they are checked.

        Raises SinkError (SINK_FENCED, SINK_BATCH_BEHIND, SINK_BATCH_DIFFERS, SINK_BATCH_GAP,
        SINK_STORE_CHANGED, TOPIC_CHANGED, STAGED_BROKEN), OptionError, TopicNotFoundError,
        StoreNotSharedError, StoreLockedError, StoreUnavailableError. After an error no row is
        visible, except with QUEUES_NOT_WRITTEN.
        """
        _check_staged(staged)
        check_type(SinkBatch, "Use a pyrocket.SinkBatch(identity=…).", batch=batch)
        policy = PublishPolicy(on_difference=on_difference, on_gap=on_gap)
        with_rows = [part for part in staged if part.rows]
        if with_rows:
            publisher = self._publisher(create_topics, uploaded=uploaded)
            published = publisher.publish(batch, with_rows, policy)
            self._tidy_up(with_rows)
        else:
            published = self._publish_empty(batch, policy)
        return replace(published, left_out=_left_out(staged))

    def _publish_empty(self, batch: SinkBatch, policy: PublishPolicy) -> Published:
        record = publish_record(batch, [])
        decisions = self._decisions()
        decision = decisions.decide(record, policy)
        if record.run and not decision.drop:
            with translating_os_errors(self._layout.root, "try again", what=WRITE_FAILED):
                decisions.record_empty(record)
        decision.log()
        return Published(0, 0, decision.drop, self._engine.reader.position().published)

    def publish_anonymous(self, staged: Sequence[Staged]) -> Published:
        """Publish rows without identity, which a retry would repeat. Otherwise like `publish`."""
        _check_staged(staged)
        with_rows = [part for part in staged if part.rows]
        if with_rows:
            published = self._publisher().publish_anonymous(with_rows)
            self._tidy_up(with_rows)
        else:
            published = Published(0, 0, False, self._engine.reader.position().published)
        return replace(published, left_out=_left_out(staged))

    def discard(self, staged: Sequence[Staged]) -> None:
        """Delete staged rows that will not be published; errors of the file system are ignored."""
        _check_staged(staged)
        for part in staged:
            if part.name and part.store == self._engine.identity.store_id:
                with suppress(OSError, ValueError):
                    self._area.remove(part.name)

    def last(self, identity: str, target: str) -> int | None:
        """Return the last published batch that has rows, or None. Takes no lock."""
        known = self._ledger.last(SinkBatch(identity=identity, target=target, batch=0).key)
        return known.batch if known else None

    def clean_staging(self, *, dry_run: bool = False) -> Leftovers:
        """Delete staged files that are a week old; return their number and bytes.

        With `dry_run`, the files are only counted. Raises StorePermissionError,
        StoreUnavailableError (WRITE_FAILED).
        """
        if dry_run:
            return self._area.leftovers(self._clock())
        with translating_os_errors(self._layout.root, "try again"):
            return self._area.clean(self._clock(), now=True)

    def hook_into(self, hooks: Hooks) -> None:
        """Save the ledger before its records are deleted, and delete leftovers when cleaning."""
        hooks.leftovers.append(self._remove_leftovers)
        hooks.before_removal.append(lambda _: self._ledger.save())
        hooks.before_clean_shutdown.append(self._ledger.save)
        hooks.before_clean_shutdown.append(
            lambda: self._empty.forget(self._clock() - FORGET_AFTER_MS)
        )
        hooks.before_clean_shutdown.append(self._empty.sync)

    def _publisher(self, create_topics: bool | None = None, *, uploaded: bool = False) -> Publisher:
        if create_topics is None:
            create_topics = self._engine.config.auto_create_topics
        parts = self._engine, self._area, self._ledger, self._decisions
        more = {"check": self.uploads.check} if uploaded else {}
        return Publisher(*parts, create_topics=create_topics, **more)

    def _tidy_up(self, staged: Sequence[Staged]) -> None:
        """Recycle the published files, and delete the files of failed attempts and the folder.

        A file that cannot be deleted now is deleted when it is a week old.
        """
        with suppress(OSError):
            for part in staged:
                self._area.recycle(part.name)
            self._area.remove_batches_up_to(staged[0].name)
            self._area.remove_folder_of(staged[0].name)
            self._area.clean(self._clock())

    def _remove_leftovers(self, full: bool) -> None:
        self._area.clean(self._clock(), now=full)
        if full:
            self._area.remove_recycled()

    def _decisions(self) -> Decisions:
        store = self._engine.identity.store_id
        return Decisions(self._layout.root, store, self._ledger, self._empty)


def _left_out(staged: Sequence[Staged]) -> int:
    return sum(part.left_out for part in staged)


def _check_staged(staged: Sequence[Staged]) -> None:
    check_type(Sequence, "Use a list of results of `Stager.finish`.", staged=staged)
    for part in staged:
        check_type(Staged, "Use the result of `Stager.finish`.", staged=part)
