"""Consumer groups in random schedules, with brokers of the library."""

import logging
import shutil

import pytest
from support.client_model import KINDS, Schedule
from support.shares import share

PER_TEST = 25


@pytest.fixture(autouse=True)
def quiet_log(caplog):
    caplog.set_level(logging.CRITICAL, logger="pyrocket")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", share(range(1, 7), 2))
def test_a_group_keeps_its_promises(seed, kind, tmp_path):
    run(seed, kind, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(5000, 6000, PER_TEST))
def test_a_group_keeps_its_promises_in_thousands_of_schedules(first, kind, tmp_path):
    """5440, concurrent: the group meets a broker after the clock of another one was set back."""
    for seed in range(first, first + PER_TEST):
        run(seed, kind, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))


def run(seed, kind, folder):
    schedule = Schedule(seed, kind, folder)
    try:
        schedule.run()
    finally:
        schedule.cluster.close()
