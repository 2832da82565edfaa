"""The random choices of a run: where power is lost, which process is killed, and when.

They are the same each time, so that failures are reproducible, as with the examples of the other
tests. PYROCKET_SEED=n selects another run, PYROCKET_EXPLORE=1 a random one, whose number is
printed.
"""

import os
import random


def _seed():
    given = int(os.environ.get("PYROCKET_SEED", "0"))
    if given or not os.environ.get("PYROCKET_EXPLORE"):
        return given or 1
    return random.randrange(1, 10**6)


SEED = _seed()
