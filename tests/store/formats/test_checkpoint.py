"""The file `checkpoint`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from support.strategies import INT64

GOLDEN = Checkpoint(1600000000123, 1600000000100, 0)


def test_the_file_has_the_bytes_of_rocketmq():
    data = encode_checkpoint(GOLDEN)
    assert data[:24].hex() == "00000174876e807b00000174876e80640000000000000000"
    assert data[24:] == bytes(CHECKPOINT_BYTES - 24)
    assert decode_checkpoint(data) == GOLDEN


def test_log_and_queues_are_durable_up_to_three_seconds_before_the_older_time():
    assert GOLDEN.safe_timestamp == 1599999997100


@pytest.mark.parametrize("data", [b"", bytes(7), bytes(4096)])
def test_an_empty_or_short_file_or_a_file_of_zeros_has_a_safe_time_of_0(data):
    assert decode_checkpoint(data) == Checkpoint()
    assert Checkpoint().safe_timestamp == 0


@given(INT64, INT64, INT64, st.binary(max_size=16))
def test_encoded_times_are_decoded(log, queues, index, newer):
    checkpoint = Checkpoint(log, queues, index)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    # 5.x keeps two more offsets after the three times.
    assert decode_checkpoint(encode_checkpoint(checkpoint)[:24] + newer) == checkpoint


def test_the_safe_time_is_never_negative():
    assert Checkpoint(2999, 5000).safe_timestamp == 0
    assert Checkpoint(3001, 5000).safe_timestamp == 1
