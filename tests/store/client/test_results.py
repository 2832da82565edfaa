"""The results of listeners."""

import doctest

import pytest
from pyrocket.client import results
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import InvalidInputError, OptionError


@pytest.mark.parametrize(
    ("result", "consumed"),
    [
        (ConsumeResult.SUCCESS, 3),
        (ConsumeResult.success_up_to(-1), 0),
        (ConsumeResult.success_up_to(0), 1),
        (ConsumeResult.success_up_to(2), 3),
        (ConsumeResult.success_up_to(9), 3),
        (ConsumeResult.RECONSUME_LATER, 0),
        (ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, 0),
    ],
)
def test_consumed_counts_the_messages_up_to_the_ack_index(result, consumed):
    assert result.consumed(3) == consumed


@pytest.mark.parametrize(
    ("index", "code"), [(-2, "ACK_INDEX_ILLEGAL"), ("1", "NOT_A_NUMBER"), (None, "NOT_A_NUMBER")]
)
def test_an_invalid_ack_index_is_an_error(index, code):
    with pytest.raises(InvalidInputError) as error:
        ConsumeResult.success_up_to(index)
    assert error.value.code == code


@pytest.mark.parametrize("level", [-2, 65, "1", None])
def test_an_invalid_delay_level_is_an_error(level):
    with pytest.raises(OptionError, match="delay_level"):
        ConsumeResult.reconsume_at_level(level)


def test_the_example_in_the_docstring_is_correct():
    assert doctest.testmod(results).failed == 0
