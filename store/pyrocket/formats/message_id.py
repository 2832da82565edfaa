"""The two ids of a message, as bytes.

offset id   upper-case hex of the store host's address (4 or 16 bytes), its port (i32) and the
            physical offset (i64): 32 or 56 characters. `MessageDecoder.createMessageId`.
UNIQ_KEY    created by the sender: see `engine.message_encoder`.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), "S2")

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
    text = np.ascontiguousarray(_HEX[rows])
    offsets = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
