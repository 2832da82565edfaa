"""Publication: staged files become the log's, all at once, and never twice."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from pyrocket.clock import Clock
from pyrocket.engine.appender import Preface, Streamed
from pyrocket.engine.delayed_routing import DelayRouter
from pyrocket.engine.writer import Writer
from pyrocket.errors import PyrocketError, StoreNotSharedError
from pyrocket.formats.content_sum import ContentSum
from pyrocket.formats.publish_record import BEGIN, FENCE, SinkRecord, encode_sink_record
from pyrocket.formats.record_batch import Chunk
from pyrocket.metadata.topics import Topics
from pyrocket.services.sink.batch import Published, PublishPolicy, SinkBatch, Staged
from pyrocket.services.sink.decision import Decisions
from pyrocket.services.sink.ledger import SinkLedger
from pyrocket.services.sink.staged_file import StagedReader
from pyrocket.services.sink.staged_topics import StagedTopics
from pyrocket.services.sink.staging import StagingArea


class Publisher:
    """Publishes into one store that is open for writing."""

    def __init__(
        self,
        writer: Writer,
        topics: Topics,
        ledger: SinkLedger,
        decisions: Decisions,
        area: StagingArea,
        delays: DelayRouter,
        clock: Clock,
        *,
        create_topics: bool,
    ) -> None:
        """Make one; without `create_topics` topics that are missing are missed."""
        self._writer, self._ledger, self._area, self._clock = writer, ledger, area, clock
        self._decisions = decisions
        self._staged_topics = StagedTopics(topics, writer, delays, create=create_topics)

    def publish(
        self, batch: SinkBatch, staged: Sequence[Staged], policy: PublishPolicy
    ) -> Published:
        """Publish the rows, of which there are some, or find that they have been published."""
        record = record_of(batch, staged)
        # A look before the turn: who is too late need not read anything.
        decision = self._decisions.decide(record, policy)
        if decision.drop:
            return self._drop(record, policy)
        with ExitStack() as stack:
            try:
                files = self._open(staged, stack)
            except PyrocketError:
                # Another run may have published the batch meanwhile, and removed the files.
                decision = self._decisions.decide(record, policy)
                if decision.drop:
                    return self._drop(record, policy)
                raise
            with self._writer.exclusive():
                decision = self._decisions.decide(record, policy)
                if not decision.drop:
                    streamed = self._append(staged, files, self._preface(record))
                    self._ledger.save_if_long()
        if decision.drop:
            return self._drop(record, policy)
        decision.log()
        self._writer.flush()
        return _published(record.rows, streamed)

    def publish_anonymous(self, staged: Sequence[Staged]) -> Published:
        """Publish rows of nobody whom anyone would know again."""
        with ExitStack() as stack:
            files = self._open(staged, stack)
            with self._writer.exclusive():
                streamed = self._append(staged, files, None)
        self._writer.flush()
        return _published(sum(one.rows for one in staged), streamed)

    def _drop(self, record: SinkRecord, policy: PublishPolicy) -> Published:
        """Publish nothing, since all of it is there; a new run takes over all the same."""
        with self._writer.exclusive():
            # Only now it is final: another run may have gone on meanwhile.
            decision = self._decisions.decide(record, policy)
            known = decision.last if decision.drop else None
            if known and record.run and known.run != record.run:
                fence = encode_sink_record(_fence(record), self._clock())
                self._writer.append([fence], whole=True)
        decision.log()
        # What is repeated must be durable before it counts as done.
        self._writer.flush()
        return Published(0, 0, True, self._writer.log_end)

    def _preface(self, record: SinkRecord) -> Preface:
        born = self._clock()
        return lambda start, end: encode_sink_record(record.at(start, end), born)

    def _append(
        self, staged: Sequence[Staged], files: Sequence[StagedReader], preface: Preface | None
    ) -> Streamed:
        chunks = _Chunks(files)
        self._staged_topics.check(staged, chunks.topics())
        total = sum(one.bytes for one in staged)
        return self._writer.append_streamed(chunks, preface, total_bytes=total)

    def _open(self, staged: Sequence[Staged], stack: ExitStack) -> list[StagedReader]:
        """Open all files and check that they are what was staged, here; make missing topics."""
        files = []
        for one in staged:
            if one.store != self._writer.identity.store_id:
                raise _not_shared(f"rows were staged beside the store {one.store}, not beside this")
            try:
                path = self._area.path(one.name)
                file = StagedReader(path, one.file_bytes, one.checksum)
            except FileNotFoundError:
                raise _not_shared(f"the staged file {path} is not here") from None
            files.append(stack.enter_context(file))
            file.check()
        self._staged_topics.make(staged, _Chunks(files).topics())
        return files


class _Chunks:
    """The blocks of several files, one after the other, as often as asked."""

    def __init__(self, files: Sequence[StagedReader]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[Chunk]:
        for file in self._files:
            yield from file.chunks()

    def topics(self) -> set[str]:
        """Return where the records are to lie: topics, and those where messages wait."""
        return {block.topic for file in self._files for block in file.blocks}


def record_of(batch: SinkBatch, staged: Sequence[Staged]) -> SinkRecord:
    """Return the record that says whose batch it is, and what is in it."""
    content = ContentSum()
    for one in staged:
        content = content.plus(one.content)
    return SinkRecord(
        kind=BEGIN,
        key=batch.key,
        identity=batch.identity,
        target=batch.target,
        batch=batch.batch,
        run=batch.run,
        boot=batch.began.boot,
        began=batch.began.ns,
        rows=sum(one.rows for one in staged),
        bytes=sum(one.bytes for one in staged),
        content_bytes=content.bytes,
        content=content.sum,
    )


def _fence(record: SinkRecord) -> SinkRecord:
    return SinkRecord(
        kind=FENCE,
        key=record.key,
        identity=record.identity,
        target=record.target,
        batch=record.batch,
        run=record.run,
        boot=record.boot,
        began=record.began,
    )


def _published(rows: int, streamed: Streamed) -> Published:
    return Published(rows, streamed.end - streamed.start, False, streamed.end)


def _not_shared(what: str) -> StoreNotSharedError:
    return StoreNotSharedError(
        f"{what}: tasks and driver do not see the same directory.",
        remedy="Keep the store where all tasks and the driver run, on one machine.",
    )
