"""The ends of queues after each recovery that may have truncated the log: `pyrocket/epochs.json`.

A crash can lose messages that readers have read but that were not durable; the offsets of such
messages are then assigned to other messages. Therefore each recovery after a crash starts a new
epoch and saves the end of every queue. Offsets from an older epoch are valid up to these ends.
"""

from collections.abc import Mapping
from typing import Any

from pyrocket.base.cached import Cached
from pyrocket.disk.layout import Layout
from pyrocket.formats.fastjson import int_keys, text_keys
from pyrocket.metadata.json_table import OwnFile

_LAST, _SKIPPED = 16, 100
_MAX_ENDS = 1_000_000
"""How many ends the file has at most, besides those of the last recovery: 30 MB."""

_REMEDY = (
    "Restore it from a copy. Or delete it: then readers cannot detect where earlier recoveries"
    " truncated the log."
)

_Ends = dict[str, dict[int, int]]
"""The end of each queue, by topic and queue id."""


class Epochs:
    """The epochs of one store. Raises StoreDamagedError for an invalid file."""

    def __init__(self, layout: Layout) -> None:
        self._file = OwnFile(layout.epochs, layout.scratch, _parse, _REMEDY)
        self._load = Cached(self._file.stamp, lambda: self._file.read() or [])

    @property
    def current(self) -> int:
        """The epoch: increases with each recovery that may have truncated the log."""
        return len(self._load())

    def cut_since(self, epoch: int, topic: str, queue_id: int) -> int | None:
        """Return the smallest end of the queue saved after `epoch`; None if there is none."""
        ends = [cut.get(topic, {}).get(queue_id) for cut in self._load()[epoch:]]
        known = [end for end in ends if end is not None]
        return min(known) if known else None

    def valid_end(self, epoch: int | None, topic: str, queue_id: int, end: int) -> int:
        """Return up to which offset those from `epoch` are valid in a queue that ends at `end`."""
        if epoch is None or epoch >= self.current:
            return end
        # A queue whose end was not saved did not exist.
        return min(self.cut_since(epoch, topic, queue_id) or 0, end)

    def ends(self, topic: str, queue_id: int) -> list[int]:
        """Return the ends of the queue after the last 16 recoveries, oldest first."""
        cuts = [cut for cut in self._load() if cut][-_LAST:]
        return [cut[topic][queue_id] for cut in cuts if queue_id in cut.get(topic, {})]

    def skip(self) -> None:
        """Leave out 100 epochs, before a replica starts its own. Requires the write lock.

        The primary may have started some that the replica has not received.
        """
        self._save([*self._load(), *({} for _ in range(_SKIPPED))])

    def begin(self, queue_ends: Mapping[tuple[str, int], int]) -> None:
        """Start an epoch: save the queue ends after a recovery. Requires the write lock."""
        ends: _Ends = {}
        for (topic, queue_id), end in queue_ends.items():
            ends.setdefault(topic, {})[queue_id] = end
        self._save([*_shortened(self._load(), ends), ends])

    def _save(self, cuts: list[_Ends]) -> None:
        self._file.save([{topic: text_keys(cut[topic]) for topic in cut} for cut in cuts])


def _parse(content: Any) -> list[_Ends]:
    return [{topic: int_keys(ends) for topic, ends in cut.items()} for cut in content]


def _shortened(cuts: list[_Ends], last: _Ends) -> list[_Ends]:
    """Return earlier ends without those that `last` repeats, and without the oldest if too many.

    Every crash adds the ends of all queues; without this, crashes of an idle store would make the
    file too long to be read.
    """
    left, kept = _MAX_ENDS, list[_Ends]()
    for cut in reversed(cuts):
        changed = {
            topic: {
                queue: end for queue, end in ends.items() if last.get(topic, {}).get(queue) != end
            }
            for topic, ends in cut.items()
        }
        left -= sum(map(len, changed.values()))
        kept.append({topic: ends for topic, ends in changed.items() if ends} if left >= 0 else {})
    return kept[::-1]
