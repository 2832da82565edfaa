"""Checksums of bodies equal those of zlib, whichever library computes them."""

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.checksum import crc32

LENGTHS = st.one_of(st.integers(0, 300), st.integers(4000, 70_000))


@given(LENGTHS, st.integers(0, 255), st.integers(0, 17))
def test_checksums_equal_those_of_zlib(length, byte, skip):
    data = bytes((byte + at * at) % 256 for at in range(length))
    assert crc32(memoryview(data)[skip:]) == zlib.crc32(data[skip:])


@pytest.mark.parametrize("missing", [True, False])
def test_checksums_are_the_same_with_and_without_zlib_ng(missing):
    script = f"""
import sys
if {missing}:
    sys.modules["zlib_ng"] = None
import zlib
from pyrocket.formats import checksum
assert (checksum.crc32 is zlib.crc32) == {missing}
assert checksum.crc32(b"123456789") == 0xCBF43926
"""
    subprocess.run([sys.executable, "-c", script], check=True)
