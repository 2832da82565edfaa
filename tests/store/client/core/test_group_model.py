"""Consumer groups in random schedules, with brokers in memory and with the broker library."""

import logging
import shutil
from functools import partial

import pytest
from support.client_model import KINDS, Schedule
from support.shares import share
from support.store_brokers import StoreBrokers

PER_TEST = 50


@pytest.fixture(autouse=True)
def quiet_log(caplog):
    caplog.set_level(logging.CRITICAL, logger="pyrocket")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", share(range(6), 3))
def test_a_group_keeps_its_promises(seed, kind):
    Schedule(seed, kind).run()


@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
@pytest.mark.parametrize("seed", share(range(3), 1))
def test_a_group_keeps_its_promises_with_the_broker_library(seed, kind, tmp_path):
    run_over_stores(seed, kind, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
@pytest.mark.parametrize("first", range(5000, 5500, 25))
def test_a_group_keeps_its_promises_with_the_broker_library_in_many_schedules(
    first, kind, tmp_path
):
    """5440, concurrent: the group meets a broker after the clock of another one was set back."""
    for seed in range(first, first + 25):
        run_over_stores(seed, kind, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))


def run_over_stores(seed, kind, folder):
    schedule = Schedule(seed, kind, brokers=partial(StoreBrokers, folder))
    try:
        schedule.run()
    finally:
        schedule.cluster.close()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(1000, 2350, PER_TEST))
def test_a_group_keeps_its_promises_in_thousands_of_schedules(first, kind):
    for seed in range(first, first + PER_TEST):
        Schedule(seed, kind).run()
