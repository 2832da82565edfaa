"""Consumer groups in random schedules, with brokers in memory and with the broker library."""

import logging
import shutil
from functools import partial

import pytest
from support.client_model import Schedule
from support.store_brokers import StoreBrokers

KINDS = pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
PER_TEST = 100


@KINDS
@pytest.mark.parametrize("seed", range(50))
def test_a_group_keeps_its_promises(seed, orderly, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    Schedule(seed, orderly=orderly).run()


@KINDS
@pytest.mark.parametrize("seed", range(12))
def test_a_group_keeps_its_promises_with_the_broker_library(seed, orderly, tmp_path, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    run_over_stores(seed, orderly, tmp_path)


@pytest.mark.heavy
@KINDS
@pytest.mark.parametrize("first", range(5000, 5500, 25))
def test_a_group_keeps_its_promises_with_the_broker_library_in_many_schedules(
    first, orderly, tmp_path, caplog
):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    for seed in range(first, first + 25):
        run_over_stores(seed, orderly, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))


def run_over_stores(seed, orderly, folder):
    schedule = Schedule(seed, orderly=orderly, brokers=partial(StoreBrokers, folder))
    try:
        schedule.run()
    finally:
        schedule.cluster.close()


@pytest.mark.heavy
@KINDS
@pytest.mark.parametrize("first", range(1000, 3500, PER_TEST))
def test_a_group_keeps_its_promises_in_thousands_of_schedules(first, orderly, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    for seed in range(first, first + PER_TEST):
        Schedule(seed, orderly=orderly).run()
