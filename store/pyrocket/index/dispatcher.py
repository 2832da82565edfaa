"""From log records to queue entries: deterministic and repeatable, because records never change.

Messages outside a transaction and committed ones get an entry; prepared and rolled back ones do
not. Source: `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`.
"""

from collections.abc import Callable, Container, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import Entries, build_entries
from pyrocket.formats.record import SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION_MASK
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.runs import Ints
from pyrocket.index.queues import Queues
from pyrocket.index.tags_code import tags_codes

WHOLE_LOG = 2**63 - 1
"""As a bound: every entry that has been written counts."""

FirstOffset = Callable[[str, int], int]
"""Where a queue without files begins: 0, or where a deleted topic of that name ended."""


class Dispatcher:
    """Brings the queues up to date with runs of the log. The caller holds the mutex."""

    def __init__(self, queues: Queues, first_offset: FirstOffset) -> None:
        self._queues, self._first_offset = queues, first_offset

    def dispatch(
        self,
        runs: Iterable[RecordFields],
        *,
        dispatched: int = WHOLE_LOG,
        complete: Container[str] = (),
    ) -> None:
        """Give each record of the runs, in log order, its entry. Repeating changes nothing.

        Entries of records at or behind `dispatched` are written anew: whoever wrote them may have
        died in the middle of one. A queue of the topics `complete` has to begin at its first
        offset. Raises StoreDamagedError (QUEUE_GAP).
        """
        for run in runs:
            run.check_structure()
            chosen = np.flatnonzero(_has_entry(run.sys_flag))
            topics = run.topics().take(pa.array(chosen)).dictionary_encode()
            names = topics.dictionary.to_pylist()
            codes = topics.indices.to_numpy().astype(np.int64)
            entries = build_entries(
                run.physical_offset[chosen], run.sizes[chosen], tags_codes(run)[chosen]
            )
            queue_ids = run.queue_id[chosen].astype(np.int64)
            offsets = run.queue_offset[chosen]
            group = codes << 32 | queue_ids
            order = np.argsort(group, kind="stable")
            cuts = np.flatnonzero(np.diff(group[order])) + 1
            for rows in np.split(order, cuts):
                if not len(rows):
                    continue
                topic, queue_id = names[codes[rows[0]]].decode(), int(queue_ids[rows[0]])
                _check_dense(topic, queue_id, offsets[rows])
                begin = self._first_offset(topic, queue_id)
                if topic not in complete:  # Older log files have been cleaned away.
                    begin = max(begin, int(offsets[rows[0]]))
                queue = self._queues.get(topic, queue_id)
                # Entries of records before this run have been written, if not by the dead, by us.
                below = max(dispatched, int(run.physical_offset[0]))
                end = queue.max_offset(below) or begin
                queue.put(int(offsets[rows[0]]), entries[rows], end)

    def put(self, topic: str, queue_id: int, first: int, entries: Entries) -> None:
        """Write the entries of queue offsets from `first` on, the queue's next."""
        self._queues.get(topic, queue_id).put(first, entries, first)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the queue's next entry has."""
        last = self._queues.get(topic, queue_id).max_offset(WHOLE_LOG)
        return last or self._first_offset(topic, queue_id)


def _check_dense(topic: str, queue_id: int, offsets: Ints) -> None:
    steps = np.diff(offsets)
    if (steps != 1).any():
        raise StoreDamagedError(
            f"the log has a gap in queue {queue_id} of {topic!r} after offset"
            f" {int(offsets[int(np.argmax(steps != 1))])}.",
            code="QUEUE_GAP",
        )


def _has_entry(sys_flag: Ints) -> npt.NDArray[np.bool_]:
    kind = sys_flag & SYS_TRANSACTION_MASK
    return (kind != SYS_PREPARED) & (kind != SYS_ROLLBACK)
