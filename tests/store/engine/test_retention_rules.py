"""RocketMQ's rules for the deletion of log files."""

import time

import pytest
from pyrocket.base.config import Retention
from pyrocket.disk.layout import Layout
from pyrocket.disk.machine import DiskUsage
from pyrocket.engine.cleaner import (
    DISK,
    EXPIRED,
    TOTAL_BYTES,
    local_hour,
    plan_by_hand,
    plan_cleaning,
)
from pyrocket.engine.disk_room import DiskRoom
from pyrocket.values.admin import LogFile

HOUR = 3_600_000
SIZE = 100
NOON = 1_700_049_600_000
FOUR = NOON - 8 * HOUR
ROOMY = DiskUsage(10, 1000)


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def files(*ages_in_hours, now=FOUR):
    """Log files whose last messages have these ages, followed by a new file."""
    stored = [now - int(age * HOUR) for age in ages_in_hours] + [now]
    return [LogFile(at * SIZE, SIZE, each) for at, each in enumerate(stored)]


def going(plan):
    return [(removal.file.start // SIZE, removal.reason) for removal in plan]


def full(ratio):
    return DiskUsage(round(ratio * 10_000), 10_000)


def test_expired_files_are_deleted_at_the_configured_hour():
    plan = plan_cleaning(Retention(), files(100, 72, 71.9, 50), ROOMY, FOUR)
    assert going(plan) == [(0, EXPIRED), (1, EXPIRED)]


def test_files_are_deleted_only_during_the_configured_hour():
    old = files(1000)
    for minute in (0, 59):
        assert going(plan_cleaning(Retention(), old, ROOMY, FOUR + minute * 60_000))
    for hours in (-1, 1, 8):
        assert not going(plan_cleaning(Retention(), old, ROOMY, FOUR + hours * HOUR))
    several = Retention(at_hours=(4, 12))
    assert going(plan_cleaning(several, old, ROOMY, NOON))


def test_the_hour_is_in_local_time(monkeypatch):
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    assert local_hour(FOUR) == 9
    assert not going(plan_cleaning(Retention(), files(1000), ROOMY, FOUR))
    assert going(plan_cleaning(Retention(), files(1000), ROOMY, FOUR - 5 * HOUR))


def test_deletion_stops_at_the_first_file_that_has_not_expired():
    assert going(plan_cleaning(Retention(), files(1, 1000), ROOMY, FOUR)) == []


def test_above_the_clean_ratio_expired_files_but_no_others_are_deleted_at_any_hour():
    old_and_young = files(1000, 10, now=NOON)
    assert going(plan_cleaning(Retention(), old_and_young, full(0.75), NOON)) == []
    assert going(plan_cleaning(Retention(), old_and_young, full(0.76), NOON)) == [(0, EXPIRED)]


def test_above_the_force_ratio_the_oldest_files_are_deleted_until_enough_is_free():
    young = files(1, 1, 1, 1, now=NOON)
    assert going(plan_cleaning(Retention(), young, full(0.85), NOON)) == []
    assert going(plan_cleaning(Retention(), young, full(0.855), NOON)) == [(0, DISK)]
    assert going(plan_cleaning(Retention(), young, full(0.87), NOON)) == [(0, DISK), (1, DISK)]


@pytest.mark.parametrize(("ratio", "is_refused"), [(0.90, False), (0.91, True)])
def test_above_the_full_ratio_appends_are_also_rejected(tmp_path, monkeypatch, ratio, is_refused):
    monkeypatch.setattr(DiskRoom, "usage", lambda room: full(ratio))
    assert DiskRoom(Layout(tmp_path), SIZE).is_full(Retention()) is is_refused
    assert going(plan_cleaning(Retention(), files(1, now=NOON), full(ratio), NOON)) == [(0, DISK)]


def test_the_last_file_is_never_deleted():
    alone = [LogFile(0, SIZE, 0)]
    policy = Retention(hours=0, total_bytes=0)
    assert going(plan_cleaning(policy, alone, full(0.99), FOUR)) == []
    assert going(plan_by_hand(alone, FOUR, hours=0, total_bytes=0)) == []
    assert going(plan_cleaning(policy, [], full(0.99), FOUR)) == []


def test_a_run_deletes_a_limited_number_of_files():
    many = files(*[1000] * 30)
    assert len(plan_cleaning(Retention(), many, ROOMY, FOUR)) == 10
    assert len(plan_cleaning(Retention(files_per_run=3), many, full(0.99), FOUR)) == 3
    assert len(plan_by_hand(many, FOUR, hours=72, total_bytes=None)) == 30


def test_above_the_total_bytes_the_oldest_files_are_deleted_at_any_hour():
    young = files(1, 1, 1, now=NOON)
    for limit, count in ((4 * SIZE, 0), (4 * SIZE - 1, 1), (2 * SIZE, 2), (0, 3)):
        plan = plan_cleaning(Retention(total_bytes=limit), young, ROOMY, NOON)
        assert going(plan) == [(at, TOTAL_BYTES) for at in range(count)]


def test_a_manual_cleaning_applies_only_the_given_limits():
    mixed = files(100, 50, 1, now=NOON)
    assert going(plan_by_hand(mixed, NOON, hours=72, total_bytes=None)) == [(0, EXPIRED)]
    assert going(plan_by_hand(mixed, NOON, hours=None, total_bytes=2 * SIZE)) == [
        (0, TOTAL_BYTES),
        (1, TOTAL_BYTES),
    ]
    assert going(plan_by_hand(mixed, NOON, hours=72, total_bytes=2 * SIZE)) == [
        (0, EXPIRED),
        (1, TOTAL_BYTES),
    ]
