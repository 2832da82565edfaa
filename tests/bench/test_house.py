"""The script that measures the layout of the code works; its figures are not checked."""

from pathlib import Path

from bench import house

ROOT = Path(__file__).resolve().parents[2]


def test_each_walk_can_be_measured(fast_disk):
    walks = house.Walks(ROOT, fast_disk).found
    assert len(walks) == len([*house.table({}, walks)]) - 1
    assert all(walk.files and walk.crossings for walk in walks.values())
