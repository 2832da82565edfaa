"""Random schedules of receives, acks, timeouts, restarts and kills agree with a model."""

import pytest
from support.pop_model import Schedule

CHUNKS, SEEDS, STEPS = 3, 6, 40


def play(open_store, clock, first, count, steps):
    """Play schedules one after the other in one store."""
    store = open_store()
    for seed in range(first, first + count):
        Schedule(store, clock, seed).run(steps)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules_agree_with_the_model(open_store, clock, chunk):
    play(open_store, clock, chunk * SEEDS, SEEDS, STEPS)


@pytest.mark.heavy
@pytest.mark.parametrize("chunk", range(500))
def test_thousands_of_schedules_agree_with_the_model(open_store, clock, chunk):
    play(open_store, clock, 10_000 + chunk * 10, 10, 80)
