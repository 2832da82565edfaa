"""The ends of queues after each recovery that may have truncated the log: `pyrocket/epochs.json`.

A crash can lose messages that readers have read but that were not durable; the offsets of such
messages are then assigned to other messages. Therefore each recovery after a crash starts a new
epoch and saves the end of every queue. Offsets from an older epoch are valid up to these ends.
"""

from collections.abc import Mapping

from pyrocket.base.cached import Cached
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error, int_keys, text_keys
from pyrocket.metadata.json_table import file_stamp

_LAST, _SKIPPED = 16, 100
_MAX_ENDS = 1_000_000
"""How many ends the file has at most, besides those of the last recovery: 30 MB."""

_Ends = dict[str, dict[int, int]]
"""The end of each queue, by topic and queue id."""


class Epochs:
    """The epochs of one store. Raises StoreDamagedError for an invalid file."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._load = Cached(lambda: file_stamp(layout.epochs), self._parse)

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
        path = self._layout.epochs
        content = [{topic: text_keys(cut[topic]) for topic in cut} for cut in cuts]
        replace_file(path, encode_own(path, content), self._layout.scratch)

    def _parse(self) -> list[_Ends]:
        text = read_or_none(self._layout.epochs)
        try:
            known = decode_own(self._layout.epochs, text) if text else []
            return [{name: int_keys(ends) for name, ends in cut.items()} for cut in known]
        except PARSE_ERRORS as error:
            raise StoreDamagedError(
                f"{self._layout.epochs} cannot be parsed ({describe_error(error)}).",
                remedy="Restore it from a copy. Or delete it: then readers cannot detect where"
                " earlier recoveries truncated the log.",
            ) from error


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
