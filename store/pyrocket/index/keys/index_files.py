"""The files of the key index as writers keep them: which count, which is continued.

A RocketMQ broker that is to be refused at our lock has loaded the store by then: it removes the
file that is not full, and others that its checkpoint does not vouch for, and builds new ones from
the place on at which it recovers, perhaps for seconds. So the last file is continued only if it is
the one that a writer of ours made (the words KEY_FILE) or found after a broker's clean end; others
count only if they are full, which nobody changes any more; and none counts behind a gap
(`IndexCoverage`). What does not count is removed: a broker that still builds it does no harm then.
"""

import os
from dataclasses import replace

from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, INDEXED, KEY_FILE, KEY_FILE_INODE, SharedState
from pyrocket.formats.checkpoint import decode_checkpoint, encode_checkpoint
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.record import read_header
from pyrocket.index.keys.index_coverage import IndexCoverage
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import KeyItems
from pyrocket.log.checkpoint_file import read_checkpoint
from pyrocket.log.commit_log import CommitLog

_HEAD_BYTES = 8


class IndexFiles:
    """The files of one store that is open for writing; all but `have_changed` need the turn.

    `names` are those that counted at the last look, and those made since.
    """

    def __init__(
        self, layout: Layout, log: CommitLog, page: SharedState, geometry: Geometry
    ) -> None:
        self._layout, self._log, self._page = layout, log, page
        self.index = KeyIndex(layout, geometry, self._made)
        self._span = IndexCoverage(log, self.index)
        self._folder, self._changed = str(layout.index), 0
        self.names: list[str] = []

    def settle(self, *, clean: bool) -> None:
        """Begin after a recovery; whoever wrote last has gone.

        After an unclean end only files that were surely durable are kept. What is missing then is
        built again as the store is used.
        """
        files = self._sound()
        if not clean:
            files = files[: self.index.durable(read_checkpoint(self._layout).index_timestamp)]
        self._begin(files)

    def join(self) -> None:
        """Begin where nothing had to be recovered."""
        self._begin(self._ours(self._sound()))

    def check(self) -> None:
        """Remove files that do not count; INDEXED goes back if one of ours is gone."""
        files = self._ours(self._sound())
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        if made in map(_identity, files) or (made == _NONE and not files):
            self._keep(files)
        else:
            self._begin(files)

    def have_changed(self) -> bool:
        """Whether files may have come or gone since the last look."""
        return self._last_change() != self._changed

    def _last_change(self) -> int:
        try:
            return os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return 0

    def append(self, items: KeyItems, now_ms: int) -> None:
        """Append to the files that count; see `KeyIndex.append`."""
        self.names = self.index.append(items, now_ms, self.names)

    def _sound(self) -> list[IndexFileInfo]:
        """Return the first files, as far as they agree with the log."""
        self._changed = self._last_change()
        files = self._span.unbroken(self.index.sound(self._page[DISPATCHED]))
        while files and not self._is_record(files[-1].header.end_offset):
            files.pop()
        return files

    def _ours(self, files: list[IndexFileInfo]) -> list[IndexFileInfo]:
        """Return the first files, up to one that is not full; that one only if it is ours."""
        made = self._page[KEY_FILE], self._page[KEY_FILE_INODE]
        for count, file in enumerate(files):
            if not self.index.is_full(file.header):
                return files[: count + (_identity(file) == made)]
        return files

    def _begin(self, files: list[IndexFileInfo]) -> None:
        """Keep these files as ours and go on behind them: the last record may lack items."""
        self._keep(files)
        self._lower_checkpoint()
        made = _identity(files[-1]) if files else _NONE
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = made
        end = files[-1].header.end_offset if files else 0
        self._page[INDEXED] = max(end, self._log.first_offset())

    def _keep(self, files: list[IndexFileInfo]) -> None:
        self.names = [file.name for file in files]
        self.index.keep(self.names)

    def _made(self, name: str, inode: int) -> None:
        self._page[KEY_FILE], self._page[KEY_FILE_INODE] = int(name), inode

    def _is_record(self, offset: int) -> bool:
        if offset < self._log.first_offset():
            return True
        head = self._log.read(offset, _HEAD_BYTES)
        return len(head) == _HEAD_BYTES and read_header(head).is_message

    def _lower_checkpoint(self) -> None:
        """Take back what the checkpoint says about files that are gone.

        Those built in their place end at the same times, but are not durable yet.
        """
        until = self.index.full_until()
        for path in (self._layout.own_checkpoint, self._layout.checkpoint):
            checkpoint = decode_checkpoint(read_or_none(path, SMALL_FILE_BYTES) or b"")
            if checkpoint.index_timestamp > until:
                content = encode_checkpoint(replace(checkpoint, index_timestamp=until))
                replace_file(path, content, self._layout.scratch)


_NONE = 0, 0


def _identity(file: IndexFileInfo) -> tuple[int, int]:
    return int(file.name), file.inode
