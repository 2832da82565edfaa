"""Fixtures for tests of what uses a store: no server, no Docker, and time that a test moves.

    def test_orders(pyrocket_store, pyrocket_clock):
        pyrocket_store.append(Message(topic="orders", body=b"1", delay_level=18))
        pyrocket_clock.advance(2 * 3_600_000)
        pyrocket_store.deliver_due()
        assert pyrocket_store.read("orders", 0, 0)

pytest finds it where pyrocket is installed; nothing is imported before a test asks for a fixture.
Spark's processes obey the clock too: `spark.read.format("pyrocket").load(pyrocket_store.path)`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyrocket.config import StoreConfig
    from pyrocket.store import Store
    from pyrocket.testing import FileClock

START_MS = 1_700_000_000_000
"""What the clock says when a test begins: 2023-11-14 22:13:20 UTC."""


@pytest.fixture
def pyrocket_config() -> "StoreConfig":
    """How the store of `pyrocket_store` is made; define your own fixture of this name to change."""
    from pyrocket.config import StoreConfig

    return StoreConfig()


@pytest.fixture
def pyrocket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the store of `pyrocket_store` lies: a new place for each test."""
    return tmp_path_factory.mktemp("pyrocket") / "store"


@pytest.fixture
def pyrocket_clock(pyrocket_path: Path) -> "FileClock":
    """Return the store's clock in all processes: it stands still until it is moved."""
    from pyrocket.testing import FileClock

    clock = FileClock(pyrocket_path)
    clock.set(START_MS)
    return clock


@pytest.fixture
def pyrocket_store(
    pyrocket_path: Path, pyrocket_clock: "FileClock", pyrocket_config: "StoreConfig"
) -> Iterator["Store"]:
    """Return an empty store, open for writing; the first send to a topic makes it."""
    from pyrocket.store import Store

    with Store.open(pyrocket_path, create=True, config=pyrocket_config) as store:
        yield store
