"""Compressed bodies."""

from contextlib import suppress

import psutil
import pytest
from golden.values import DEFLATED
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import compression
from pyrocket.formats.compression import COMPRESSED_FLAGS, deflate, inflate, lacks_flag
from support.strategies import CODECS, PLAIN_BODIES, compress

# `hello` in one uncompressed block, as other implementations store it.
LZ4_FRAME = bytes.fromhex("04224d186070730500008068656c6c6f00000000")
ZSTD_FRAME = bytes.fromhex("28b52ffd200529000068656c6c6f")


def test_bodies_are_deflated_to_the_same_bytes_as_in_java():
    assert deflate(b"a" * 5000).hex() == DEFLATED
    assert inflate(bytes.fromhex(DEFLATED), COMPRESSED_FLAGS) == b"a" * 5000


@pytest.mark.parametrize(
    ("frame", "sys_flag"), [(LZ4_FRAME, 0x101), (ZSTD_FRAME, 0x201)], ids=["lz4", "zstd"]
)
def test_frames_of_other_implementations_are_read(frame, sys_flag):
    assert inflate(frame, sys_flag) == b"hello"


@given(PLAIN_BODIES, st.sampled_from([*CODECS, 0x00F | 0x300, 0x3F5]))
def test_every_compression_type_is_inflated(body, sys_flag):
    way = sys_flag if sys_flag in CODECS else 0x301
    assert inflate(compress(body, way), sys_flag) == body


@given(st.binary(), st.sampled_from([0, 0x2, 0x8, 0x300, 0x100]))
def test_a_body_that_is_not_compressed_is_not_changed(body, sys_flag):
    assert inflate(body, sys_flag) is body


@given(PLAIN_BODIES, st.sampled_from(list(CODECS)), st.data())
def test_truncated_body_is_reported(body, sys_flag, data):
    stored = compress(body, sys_flag)
    length = data.draw(st.integers(1, len(stored) - 1))
    with pytest.raises(StoreDamagedError, match="inflate"):
        inflate(stored[:length], sys_flag)


@given(st.binary(max_size=60), st.sampled_from([*CODECS, 0x401, 0x701]))
def test_arbitrary_bytes_raise_no_error_other_than_store_damaged(body, sys_flag):
    with suppress(StoreDamagedError):
        inflate(body, sys_flag)


@given(PLAIN_BODIES, st.sampled_from(list(CODECS)), st.data())
def test_a_flipped_bit_raises_no_error_other_than_store_damaged(body, sys_flag, data):
    stored = bytearray(compress(body, sys_flag))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(StoreDamagedError):
        inflate(bytes(stored), sys_flag)


@given(PLAIN_BODIES, st.sampled_from([0x301, 0x101, 0x201]))
def test_a_compressed_body_without_the_compressed_flag_is_reported(body, sys_flag):
    stored = compress(body, sys_flag)
    assert lacks_flag(stored, sys_flag - 1)
    with pytest.raises(StoreDamagedError, match="sysFlag"):
        inflate(stored, sys_flag - 1)
    assert not lacks_flag(stored, sys_flag)
    assert not lacks_flag(stored, 0)


@pytest.mark.parametrize("sys_flag", [0x001, 0x101, 0x201], ids=["zlib", "lz4", "zstd"])
def test_bodies_that_do_not_inflate_leak_no_memory(sys_flag):
    process = psutil.Process()
    cut = compress(b"a" * 1000, sys_flag)[:-3]
    before = process.memory_info().vms
    for _ in range(100):
        with pytest.raises(StoreDamagedError):
            inflate(cut, sys_flag)
    assert process.memory_info().vms - before < 100 * 2**20


@pytest.mark.parametrize("sys_flag", [0x001, 0x101, 0x201], ids=["zlib", "lz4", "zstd"])
def test_the_size_of_an_inflated_body_is_limited(sys_flag, monkeypatch):
    monkeypatch.setattr(compression, "MAX_INFLATED_BYTES", 3 * 2**20)
    longest = bytes(3 * 2**20)
    assert inflate(compress(longest, sys_flag), sys_flag) == longest
    with pytest.raises(StoreDamagedError, match="inflates to more than"):
        inflate(compress(longest + b"a", sys_flag), sys_flag)
