"""Consumer groups in random schedules; see `support.client_model`."""

import logging

import pytest
from support.client_model import Schedule


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("seed", range(50))
def test_a_group_keeps_its_promises(seed, orderly, caplog):
    caplog.set_level(logging.ERROR, logger="pyrocket")
    Schedule(seed, orderly=orderly).run()
