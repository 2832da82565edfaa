"""`Store.history`: checks whether saved offsets still refer to the same messages.

A recovery may truncate the log, and a directory may be replaced by an older copy. A caller that
saves offsets of a store, such as the checkpoint of a stream, must also save the store's epoch and a
mark.
"""

from collections.abc import Mapping

from pyrocket.base.arguments import check_numbers, check_offsets, check_text, check_type
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.index.queues.log_marks import holds, newest_mark
from pyrocket.metadata.epochs import Epochs
from pyrocket.values.message import LogMark


@translating_methods
class History:
    """The truncations of one store's log. Never locks, never writes."""

    def __init__(self, engine: Engine) -> None:
        self._reader, self._epochs = engine.reader, Epochs(engine.layout)

    @property
    def epoch(self) -> int:
        """The number of recoveries that may have truncated the log."""
        return self._epochs.current

    @property
    def recovery_is_interrupted(self) -> bool:
        """Whether a writer died during a recovery. If so, queues end at the log's durable end."""
        return self._reader.bound() == self._reader.interrupted_end() > 0

    def cut_since(self, epoch: int, topic: str, queue_id: int) -> int | None:
        """Return the lowest offset to which recoveries after `epoch` truncated the queue."""
        check_text(topic=topic)
        check_numbers(epoch=epoch, queue_id=queue_id)
        return self._epochs.cut_since(epoch, topic, queue_id)

    def mark(self, offsets: Mapping[str, Mapping[int, int]]) -> LogMark | None:
        """Return the mark of the newest message before {topic: {queue id: next offset}}.

        Before using these offsets again, a caller passes the mark to `holds`. Returns None if all
        messages before the offsets have been deleted. Reads 20 bytes per queue.
        """
        check_offsets(offsets)
        table = self._reader.files.queues
        ends = [
            (table.get(topic, queue_id), end)
            for topic, queues in offsets.items()
            for queue_id, end in queues.items()
        ]
        return newest_mark(self._reader.log, ends)

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the marked message, and thus the log before it, is unchanged.

        False after the store was restored from an older copy; None if the message was deleted with
        its log file. Reads 88 bytes.
        """
        check_type(LogMark, "Use the result of `Store.history.mark`.", mark=mark)
        return holds(self._reader.log, mark, self._reader.log_end())
