"""Computes the key index items for a run of the log: one item per key of each message.

The keys of a message are its UNIQ_KEY, then the words of its KEYS; rolled-back messages have none.
Half and delayed messages are indexed under the topic in which they are stored. Source:
`IndexService.buildIndex`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints, to_text
from pyrocket.formats.index_file import key_hashes
from pyrocket.formats.message_keys import MessageKeys
from pyrocket.formats.properties import KEYS, UNIQ_KEY
from pyrocket.formats.record import SYS_ROLLBACK, SYS_TRANSACTION_MASK
from pyrocket.formats.record_fields import RecordFields


@dataclass(frozen=True)
class KeyItems:
    """Key hashes, log offsets and store times (ms), one element per item, in log order."""

    hashes: Ints
    offsets: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, rows: slice) -> "KeyItems":
        return KeyItems(self.hashes[rows], self.offsets[rows], self.times[rows])


def key_items(run: RecordFields) -> KeyItems:
    """Return the items of the records. Raises StoreDamagedError if a record is damaged."""
    run.check_structure()
    keys = keys_of_records(run)
    return KeyItems(keys.hashes, run.physical_offset[keys.rows], run.store_timestamp[keys.rows])


def keys_of_records(run: RecordFields) -> MessageKeys:
    """Return the keys of records whose structure has been checked."""
    properties = run.property_columns
    unique, words = properties.column(UNIQ_KEY), properties.column(KEYS)
    lists = pc.split_pattern(words, " ")
    words, word_rows = lists.flatten(), pc.list_parent_indices(lists)
    filled = pc.not_equal(words, "")
    rows = np.concatenate(
        (
            np.flatnonzero(unique.is_valid().to_numpy(zero_copy_only=False)),
            word_rows.filter(filled).to_numpy(),
        )
    )
    keys = pa.concat_arrays([unique.drop_null(), words.filter(filled)])
    topics = run.topics().dictionary_encode()
    names = to_text(topics.dictionary)
    names = names[0] if len(names) == 1 else names.take(topics.indices.take(pa.array(rows)))
    hashes = key_hashes(names, keys)
    order = np.argsort(rows, kind="stable")  # The unique id of a message precedes its other keys.
    order = order[(run.sys_flag[rows[order]] & SYS_TRANSACTION_MASK) != SYS_ROLLBACK]
    return MessageKeys(rows[order], hashes[order])
