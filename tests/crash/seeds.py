"""The random choices of a run: where power is lost, which process is killed, and when.

By default every run makes the same choices, so that failures are reproducible. PYROCKET_SEED=n
selects another run, and PYROCKET_EXPLORE=1 a random one, whose seed is printed.
"""

import os
import random


def _seed():
    given = int(os.environ.get("PYROCKET_SEED", "0"))
    if given or not os.environ.get("PYROCKET_EXPLORE"):
        return given or 1
    return random.randrange(1, 10**6)


SEED = _seed()
