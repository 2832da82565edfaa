"""Consumer groups in random schedules; see `support.client_model`."""

import logging

import pytest
from support.client_model import Schedule

KINDS = pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
PER_TEST = 100


@KINDS
@pytest.mark.parametrize("seed", range(50))
def test_a_group_keeps_its_promises(seed, orderly, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    Schedule(seed, orderly=orderly).run()


@pytest.mark.heavy
@KINDS
@pytest.mark.parametrize("first", range(1000, 3500, PER_TEST))
def test_a_group_keeps_its_promises_in_thousands_of_schedules(first, orderly, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    for seed in range(first, first + PER_TEST):
        Schedule(seed, orderly=orderly).run()
