"""pytest fixtures: a store and its clock, without a server or Docker.

    def test_orders(pyrocket_store, pyrocket_clock):
        pyrocket_store.append(Message(topic="orders", body=b"1", delay_level=18))
        pyrocket_clock.advance(2 * 3_600_000)
        pyrocket_store.deliver_due()
        assert pyrocket_store.read("orders", 0, 0)

pytest loads the plugin if pyrocket is installed; `Store` is imported when a fixture is used.
Spark's processes use the same clock: `spark.read.format("pyrocket").load(pyrocket_store.path)`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyrocket.base.config import StoreConfig
    from pyrocket.store import Store
    from pyrocket.testing import FileClock

START_MS = 1_700_000_000_000
"""The time at the start of a test: 2023-11-14 22:13:20 UTC."""


@pytest.fixture
def pyrocket_config() -> "StoreConfig":
    """Return the configuration of `pyrocket_store`; override this fixture to change it."""
    from pyrocket.base.config import StoreConfig

    return StoreConfig()


@pytest.fixture
def pyrocket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of `pyrocket_store`; each test gets a new one."""
    return tmp_path_factory.mktemp("pyrocket") / "store"


@pytest.fixture
def pyrocket_clock(pyrocket_path: Path) -> "FileClock":
    """Return the store's clock, shared by all processes; it advances only when a test sets it."""
    from pyrocket.testing import FileClock

    clock = FileClock(pyrocket_path)
    clock.set(START_MS)
    return clock


@pytest.fixture
def pyrocket_store(
    pyrocket_path: Path, pyrocket_clock: "FileClock", pyrocket_config: "StoreConfig"
) -> Iterator["Store"]:
    """Yield an empty store, open for writing; the first send to a topic creates the topic."""
    from pyrocket.store import Store

    with Store.open(pyrocket_path, create=True, config=pyrocket_config) as store:
        yield store
