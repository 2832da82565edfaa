"""Power losses at every point of all operations: no acknowledged message is ever lost.

`-m heavy` runs ten parts of at least a thousand crash points each. A single part can be run with
`-k part7` and PYROCKET_SEED of the first run.
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from crash.power_loss import SHARES, NoPower, Recording, recover_and_go_on, recover_only
from crash.power_scenarios import SCENARIOS
from crash.seeds import SEED

pytestmark = pytest.mark.crash


@pytest.fixture
def folder(tmp_path):
    """The folder in which disks are restored: in memory if possible."""
    if not os.path.isdir("/dev/shm"):
        yield tmp_path
        return
    place = Path(tempfile.mkdtemp(prefix="pyrocket-", dir="/dev/shm"))
    yield place
    if (place / "failed").exists():
        shutil.copytree(place / "failed", tmp_path / "failed")
    shutil.rmtree(place)


def lose_power(name, folder, seed, *, share=1.0, variants=1, chains=1, depth=1):
    """Record a scenario, check its crash points, and continue from some of them. Return the number
    of crash points.
    """
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this run: {name} {seed}\n")
    rng = random.Random(seed)
    recording = Recording(SCENARIOS[name], folder, seed)
    with NoPower():
        return _check_all(recording, name, rng, share, variants, chains, depth)


def _check_all(recording, name, rng, share, variants, chains, depth):
    points = 0
    for label, image, promises in recording.crash_points(variants, share):
        recording.check(f"{name}, {label}", image, promises)
        points += 1
    if not depth:
        return points
    for label, image, promises in recording.chosen_points(chains, rng):
        seed = rng.randrange(10**9)
        after = Recording(recover_and_go_on, recording.folder, seed, image, promises)
        points += _check_all(after, f"{name}, {label}; then", rng, share, variants, 1, depth - 1)
    return points


@pytest.mark.parametrize(("share", "least"), SHARES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_loss_at_some_points_loses_no_durable_message(name, share, least, folder):
    assert lose_power(name, folder, SEED, share=share) >= least


@pytest.mark.parametrize(
    ("share", "least"), [(0.2, 2), pytest.param(1.0, 20, marks=pytest.mark.heavy)]
)
def test_a_power_loss_at_any_point_of_a_long_recovery_loses_no_durable_message(
    folder, share, least
):
    """The names of many files are durable, but their contents are not."""
    recording = Recording(SCENARIOS["much_is_not_durable"], folder, SEED)
    image, promises = recording.last_point("lost", "kept")
    recovery = Recording(recover_only, folder, SEED, image, promises)
    assert sum(op[0] == "unlink" for op in recovery.ops) > 5
    with NoPower():
        assert _check_all(recovery, "recovery", random.Random(SEED), share, 1, 0, 0) > least


HEAVY = [pytest.param(part, id=f"part{part}") for part in range(10)]


@pytest.mark.heavy
@pytest.mark.parametrize("part", HEAVY)
def test_a_power_loss_at_any_point_loses_no_durable_message(part, folder):
    points = 0
    for name in SCENARIOS:
        points += lose_power(name, folder, SEED * 100 + part, share=0.25, depth=2)
    sys.stdout.write(f"part {part}: {points} crash points\n")
    assert points >= 1000
