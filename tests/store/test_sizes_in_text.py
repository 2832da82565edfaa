"""Sizes in error messages and tables have a suitable unit."""

import pytest
from pyrocket.base.arguments import format_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1 << 10, "1.0 KiB"),
        ((1 << 20) - 1, "1,024.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 40, "1.0 TiB"),
        (-(1 << 40), "-1.0 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_that_does_not_exceed_it(size, text):
    assert format_size(size) == text
