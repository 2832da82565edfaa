"""Each setting accepts the values at its bounds and rejects the next values beyond them."""

import pytest
from pyrocket import Retention, StoreConfig
from pyrocket.errors import OptionError

LONGEST_MS = 2**42
NUMBERS = {
    "queue_file_entries": (1, 2**31 // 20 - 1),
    "default_queues": (1, 1024),
    "flush_interval_ms": (1, LONGEST_MS),
    "flush_least_pages": (0, 2**63 - 1),
    "flush_thorough_interval_ms": (1, LONGEST_MS),
    "flush_timeout_ms": (1, LONGEST_MS),
    "lock_timeout_ms": (0, LONGEST_MS),
    "timer_max_delay_ms": (0, 2**63 - 1),
}
ALLOWED = [(name, value) for name, bounds in NUMBERS.items() for value in bounds]
ALLOWED += [
    ("log_file_bytes", 4096),
    ("log_file_bytes", 2**31 - 4096),
    ("dir_mode", 0o700),
    ("dir_mode", 0o6777),
    ("flush", "async"),
    ("flush", "sync"),
    ("flush", "manual"),
    ("property_crc", True),
    ("property_crc", False),
    ("property_crc", None),
]
REFUSED = [
    (name, value)
    for name, (low, high) in NUMBERS.items()
    for value in (low - 1, high + 1, 1.0, "1")
]
REFUSED += [
    ("log_file_bytes", 0),
    ("log_file_bytes", 4095),
    ("log_file_bytes", 4097),
    ("log_file_bytes", 2**31),
    ("dir_mode", 0o677),
    ("dir_mode", 0o1700),
    ("flush", "never"),
    ("property_crc", 1),
]
RETENTION_ALLOWED = [
    {"hours": 0},
    {"total_bytes": 0},
    {"files_per_run": 1},
    {"at_hours": (0, 23)},
    {"at_hours": ()},
    {"clean_ratio": 0.0},
    {"full_ratio": 1.0},
    {"clean_ratio": 0.5, "force_ratio": 0.5, "full_ratio": 0.5},
]
RETENTION_REFUSED = [
    {"hours": -1},
    {"hours": float("nan")},
    {"total_bytes": -1},
    {"files_per_run": 0},
    {"at_hours": (-1,)},
    {"at_hours": (24,)},
    {"clean_ratio": -0.1},
    {"full_ratio": 1.1},
    {"clean_ratio": 0.86},
    {"force_ratio": 0.91},
]


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_a_value_at_a_bound_is_accepted(name, value):
    assert getattr(StoreConfig(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_value_beyond_a_bound_is_rejected(name, value):
    with pytest.raises(OptionError, match=name) as failure:
        StoreConfig(**{name: value})
    assert failure.value.remedy


@pytest.mark.parametrize(
    ("slots", "items"), [(1, 2), ((2**31 - 40 - 40) // 4 - 1, 2), (1, (2**31 - 40 - 4) // 20)]
)
def test_index_files_may_be_as_small_and_as_large_as_a_file_of_2_gib_allows(slots, items):
    config = StoreConfig(index_slots=slots, index_items=items)
    assert (config.index_slots, config.index_items) == (slots, items)


@pytest.mark.parametrize(
    ("slots", "items"),
    [(0, 2), (1, 1), ((2**31 - 40 - 40) // 4, 2), (1, (2**31 - 40 - 4) // 20 + 1)],
)
def test_index_files_beyond_2_gib_or_without_items_are_rejected(slots, items):
    with pytest.raises(OptionError, match="index_slots"):
        StoreConfig(index_slots=slots, index_items=items)


@pytest.mark.parametrize("values", RETENTION_ALLOWED)
def test_a_retention_at_its_bounds_is_accepted(values):
    retention = Retention(**values)
    assert {name: getattr(retention, name) for name in values} == values


@pytest.mark.parametrize("values", RETENTION_REFUSED)
def test_a_retention_beyond_its_bounds_is_rejected(values):
    with pytest.raises(OptionError) as failure:
        Retention(**values)
    assert failure.value.remedy
