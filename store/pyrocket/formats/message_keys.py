"""The ids of messages, and their keys as hashes for the key index.

offset id   upper-case hex of the store host's address (4 or 16 bytes), its port (i32) and the
            physical offset (i64): 32 or 56 characters. `MessageDecoder.createMessageId`.
UNIQ_KEY    created by the sender: see `engine.message_encoder`.
keys        the UNIQ_KEY, then the words of KEYS, separated by a space. `IndexService.buildIndex`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints, run_offsets, text_bytes
from pyrocket.formats.index_file import key_hash, key_hashes

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_OFFSET_ID_LENGTHS = (32, 56)


def offset_message_id(host: bytes, port: int, physical_offset: int) -> str:
    """Return the offset id of the record at `physical_offset`."""
    tail = port.to_bytes(4, "big", signed=True) + physical_offset.to_bytes(8, "big", signed=True)
    return (host + tail).hex().upper()


def parse_offset_message_id(text: str) -> tuple[bytes, int, int] | None:
    """Return host, port and physical offset of an offset id; None for any other text."""
    if len(text) not in _OFFSET_ID_LENGTHS or not _HEX_DIGITS.issuperset(text):
        return None
    data = bytes.fromhex(text)
    port = int.from_bytes(data[-12:-8], "big", signed=True)
    return data[:-12], port, int.from_bytes(data[-8:], "big", signed=True)


def hex_column(rows: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Return the upper-case hex of each row of bytes (shape: rows, bytes)."""
    count, width = rows.shape
    text = rows.tobytes().hex().upper().encode()
    offsets = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


_SPACE = 32


@dataclass(frozen=True)
class MessageKeys:
    """The keys of a batch in RocketMQ's order: the row (from 0) and the keyHash of each key."""

    rows: Ints
    hashes: Ints

    def __len__(self) -> int:
        return len(self.hashes)


def keys_of_message(topic: str, unique_id: str, words: Sequence[str]) -> MessageKeys:
    """Return the keys of one message, without empty words."""
    hashes = [key_hash(topic, word) for word in (unique_id, *words) if word]
    return MessageKeys(np.zeros(len(hashes), np.int64), np.array(hashes, np.int64))


def keys_of_batch(
    topics: str | pa.StringArray, unique_ids: pa.StringArray, keys: pa.StringArray | None
) -> MessageKeys:
    """Return the keys of messages of one topic, or with a topic each.

    Unique ids, and the `keys` separated by spaces, may be null.
    """
    words, word_rows = words_of(unique_ids.slice(0, 0) if keys is None else keys)
    rows = np.concatenate((np.flatnonzero(unique_ids.is_valid()), word_rows))
    names = pa.scalar(topics) if isinstance(topics, str) else topics.take(pa.array(rows))
    hashes = key_hashes(names, pa.concat_arrays([unique_ids.drop_null(), words]))
    order = np.argsort(rows, kind="stable")  # The unique id of a message precedes its other keys.
    return MessageKeys(rows[order], hashes[order])


def words_of(keys: pa.StringArray) -> tuple[pa.StringArray, Ints]:
    """Return all non-empty words of texts, which are separated by spaces, and the row of each."""
    if not (text_bytes(keys) == _SPACE).any():
        filled = np.diff(run_offsets(keys)) > 0
        if keys.null_count:  # The slot of a null may contain bytes.
            filled &= keys.is_valid().to_numpy(zero_copy_only=False)
        if filled.all():
            return keys, np.arange(len(keys))
        return keys.filter(pa.array(filled)), np.flatnonzero(filled)
    lists = pc.split_pattern(keys, " ")
    words, rows = lists.flatten(), pc.list_parent_indices(lists)
    filled = pc.not_equal(words, "")
    return words.filter(filled), rows.filter(filled).to_numpy().astype(np.int64)
