"""Where recoveries have cut the log: `pyrocket/epochs.json`.

A crash can take messages that readers had seen but that were not durable yet; the offsets are
given again to other messages. Each recovery after an unclean end therefore begins a new epoch and
notes where every queue ended. Offsets taken in an older epoch are good up to those ends.
"""

from collections.abc import Mapping

from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error, int_keys, text_keys

_LAST = 16

_Ends = dict[str, dict[int, int]]
"""Where queues ended, by topic and queue id."""


class Epochs:
    """Reads the file anew at each call: it is small and rarely asked for.

    Raises StoreDamagedError if the file cannot be parsed.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @property
    def current(self) -> int:
        """The number of recoveries that may have cut something."""
        return len(self._load())

    def cut_since(self, epoch: int, topic: str, queue_id: int) -> int | None:
        """Return the smallest end of the queue noted after `epoch`; None if there is none."""
        ends = [cut.get(topic, {}).get(queue_id) for cut in self._load()[epoch:]]
        known = [end for end in ends if end is not None]
        return min(known) if known else None

    def ends(self, topic: str, queue_id: int) -> list[int]:
        """Return where the queue ended after each of the last recoveries that knew it."""
        cuts = self._load()[-_LAST:]
        return [cut[topic][queue_id] for cut in cuts if queue_id in cut.get(topic, {})]

    def begin(self, queue_ends: Mapping[tuple[str, int], int]) -> None:
        """Note where the queues end after a recovery; the caller holds the mutex."""
        ends: _Ends = {}
        for (topic, queue_id), end in queue_ends.items():
            ends.setdefault(topic, {})[queue_id] = end
        path, cuts = self._layout.epochs, [*self._load(), ends]
        content = [{topic: text_keys(cut[topic]) for topic in cut} for cut in cuts]
        replace_file(path, encode_own(path, content), self._layout.scratch)

    def _load(self) -> list[_Ends]:
        text = read_or_none(self._layout.epochs)
        try:
            known = decode_own(self._layout.epochs, text) if text else []
            return [{name: int_keys(ends) for name, ends in cut.items()} for cut in known]
        except PARSE_ERRORS as error:
            raise StoreDamagedError(
                f"{self._layout.epochs} cannot be parsed ({describe_error(error)}).",
                remedy="Restore it from a copy, or remove it: then nobody is told any more where"
                " earlier recoveries have cut the log.",
            ) from error
