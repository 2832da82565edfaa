"""Publishes staged files: all rows become visible together, exactly once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.engine.appender import Preface, Streamed
from pyrocket.engine.delayed_routing import DelayRouter
from pyrocket.engine.engine import Engine
from pyrocket.errors import PyrocketError, SinkError, StoreNotSharedError
from pyrocket.formats.publish_record import BEGIN, FENCE, SinkRecord, encode_sink_record
from pyrocket.formats.record_batch import Chunk
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.metadata.topics import lacking_topics
from pyrocket.services.sink.batch import PublishPolicy, SinkBatch
from pyrocket.services.sink.decision import Decisions
from pyrocket.services.sink.ledger import SinkLedger
from pyrocket.services.sink.staged_file import StagedReader
from pyrocket.services.sink.staging import StagingArea
from pyrocket.values.admin import TopicConfig
from pyrocket.values.sink import ContentSum, Published, Staged


class Publisher:
    """Publishes into one store that is open for writing."""

    def __init__(
        self,
        engine: Engine,
        area: StagingArea,
        ledger: SinkLedger,
        decisions: Callable[[], Decisions],
        *,
        create_topics: bool,
        check: Callable[[Staged], None] = lambda staged: None,
    ) -> None:
        """Without `create_topics`, a missing topic is an error. Raises StoreReadOnlyError.

        `decisions` is called for a batch with an identity, `check` before a file is opened.
        """
        self._writer, self._clock = engine.writer, engine.clock
        self._area, self._ledger, self._decisions = area, ledger, decisions
        self._topics, self._check = _BatchTopics(engine, create=create_topics), check

    def publish(
        self, batch: SinkBatch, staged: Sequence[Staged], policy: PublishPolicy
    ) -> Published:
        """Publish a batch with rows, or drop it if it was published before."""
        record = publish_record(batch, staged)
        # First without the write lock, because the files of a replay need not be read.
        if self._decisions().decide(record, policy).drop:
            return self._drop(record, policy)
        with ExitStack() as stack:
            try:
                files = self._open(staged, stack)
            except PyrocketError:
                # Another run, or the same call before its repetition, may be publishing the batch,
                # and has deleted files: only under the write lock is it known what became of it.
                with self._writer.exclusive(even_if_full=True):
                    is_there = self._decisions().decide(record, policy).drop
                if is_there:
                    return self._drop(record, policy)
                raise
            with self._writer.exclusive():
                decision = self._decisions().decide(record, policy)
                if not decision.drop:
                    streamed = self._append(staged, files, self._preface(record))
                    self._ledger.save_if_long()
        if decision.drop:
            return self._drop(record, policy)
        decision.log()
        self._writer.flush()
        return _published(record.rows, streamed)

    def publish_anonymous(self, staged: Sequence[Staged]) -> Published:
        """Publish rows of a batch without identity; a retry would publish them again."""
        with ExitStack() as stack:
            files = self._open(staged, stack)
            with self._writer.exclusive():
                streamed = self._append(staged, files, None)
        self._writer.flush()
        return _published(sum(part.rows for part in staged), streamed)

    def _drop(self, record: SinkRecord, policy: PublishPolicy) -> Published:
        """Append no rows. A new run still replaces the run that published the batch."""
        with self._writer.exclusive():
            # Another run may have published after the first decision; this decision is final.
            decision = self._decisions().decide(record, policy)
            known = decision.last if decision.drop else None
            if known and record.run and known.run != record.run:
                fence = replace(record, kind=FENCE, rows=0, bytes=0, content_bytes=0, content=0)
                self._writer.append([encode_sink_record(fence, self._clock())], whole=True)
        decision.log()
        # The process that published the batch may have crashed before the flush.
        self._writer.flush()
        return Published(0, 0, True, self._writer.page[PUBLISHED])

    def _preface(self, record: SinkRecord) -> Preface:
        born = self._clock()
        return lambda start, end: encode_sink_record(record.at(start, end), born)

    def _append(
        self, staged: Sequence[Staged], files: Sequence[StagedReader], preface: Preface | None
    ) -> Streamed:
        chunks = _Chunks(files)
        self._topics.ensure(staged, chunks.topics())
        total = sum(block.data_bytes for file in files for block in file.blocks)
        return self._writer.append_streamed(chunks, preface, total_bytes=total)

    def _open(self, staged: Sequence[Staged], stack: ExitStack) -> list[StagedReader]:
        """Open all files, check that they are complete and unchanged, and create missing topics."""
        files = []
        for part in staged:
            if part.store != self._writer.identity.store_id:
                raise _not_shared(f"rows were staged for the store {part.store}, not for this one")
            self._check(part)
            try:
                path = self._area.path(part.name)
                file = StagedReader(path, part.file_bytes, part.checksum)
            except FileNotFoundError:
                raise _not_shared(f"the staged file {path} is missing") from None
            files.append(stack.enter_context(file))
            file.check()
            _check_routes(part, file)
        self._topics.create_missing(staged, _Chunks(files).topics())
        return files


class _Chunks:
    """The blocks of several files in order; can be iterated several times."""

    def __init__(self, files: Sequence[StagedReader]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[Chunk]:
        for file in self._files:
            yield from file.chunks()

    def topics(self) -> set[str]:
        """Return the topics of the records, including the system topics of delayed messages."""
        return {block.topic for file in self._files for block in file.blocks}


class _BatchTopics:
    """Creates missing topics of a batch, and checks that existing topics have not changed.

    In its methods, `used` contains the topics of the staged records.
    """

    def __init__(self, engine: Engine, *, create: bool) -> None:
        self._engine, self._topics, self._create = engine, engine.topics, create
        self._delays = DelayRouter(engine.config)

    def create_missing(self, staged: Sequence[Staged], used: Iterable[str]) -> None:
        """Create missing topics before the append, which is then short. Raises as `ensure` does."""
        if lacking_topics(self._queues(staged, used), self._topics.all()):
            with self._engine.writer.exclusive():
                self.ensure(staged, used)

    def ensure(self, staged: Sequence[Staged], used: Iterable[str]) -> None:
        """Create missing topics, and check that the selected queues exist.

        The caller must hold the write lock. Raises SinkError (TOPIC_CHANGED), TopicNotFoundError.
        """
        self._engine.ensure_topics(self._queues(staged, used))

    def _queues(self, staged: Sequence[Staged], used: Iterable[str]) -> dict[str, int]:
        """Return the topics of the batch and their queue counts. Raises the errors of `ensure`."""
        routed: dict[str, set[int]] = {}
        for part in staged:
            for name, queues in part.topics.items():
                routed.setdefault(name, set()).add(queues)
        known = self._topics.all()
        for name, counts in routed.items():
            if not self._create:
                self._topics.get(name)
            _check_unchanged(name, counts, known.get(name))
        wanted = {name: max(counts) for name, counts in routed.items()}
        return {**wanted, **self._delays.rooms(used)}


def _check_unchanged(name: str, queues: set[int], known: TopicConfig | None) -> None:
    """Raise SinkError if the topic's queue count has changed since the rows were staged."""
    counts = queues | ({known.write_queues} if known else set())
    if len(counts) > 1 or (known and not known.writable):
        raise SinkError(
            f"topic {name!r} was changed while its rows were staged: the topic has or had the write"
            f" queues {sorted(counts)}, or is no longer writable.",
            remedy="Run the write again; none of its rows are visible.",
            code="TOPIC_CHANGED",
        )


def publish_record(batch: SinkBatch, staged: Sequence[Staged]) -> SinkRecord:
    """Return the record that identifies a batch and summarizes its rows."""
    content = ContentSum()
    for part in staged:
        content = content.plus(part.content)
    return SinkRecord(
        kind=BEGIN,
        key=batch.key,
        identity=batch.identity,
        target=batch.target,
        batch=batch.batch,
        run=batch.run,
        boot=batch.began.boot,
        began=batch.began.ns,
        rows=sum(part.rows for part in staged),
        bytes=sum(part.bytes for part in staged),
        content_bytes=content.bytes,
        content=content.sum,
    )


def _published(rows: int, streamed: Streamed) -> Published:
    return Published(rows, streamed.end - streamed.start, False, streamed.end)


def _check_routes(staged: Staged, file: StagedReader) -> None:
    """Check the queues and row count of a staged file. Raises SinkError (STAGED_BROKEN).

    A broker has already checked the destinations of delayed rows when it received them.
    """
    rows = 0
    for chunk in file.chunks():
        rows += len(chunk)
        is_delayed = chunk.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
        if not is_delayed and int(chunk.queue_ids.max()) >= staged.topics.get(chunk.topic, 0):
            raise _not_routed(staged, f"it has rows for other queues of {chunk.topic!r}")
    if rows != staged.rows:
        raise _not_routed(staged, f"it has {rows} rows, not {staged.rows}")


def _not_routed(staged: Staged, what: str) -> SinkError:
    return SinkError(
        f"the staged file {staged.name} is not the file that its task staged: {what}.",
        remedy="Run the write again: nothing of it has been published.",
        code="STAGED_BROKEN",
    )


def _not_shared(what: str) -> StoreNotSharedError:
    return StoreNotSharedError(
        f"{what}: tasks and driver do not see the same directory.",
        remedy="Keep the store where all tasks and the driver run, on one machine.",
    )
