"""What the commands ask of a store: typed values in and out.

`DirectoryTarget` answers from a store's directory. The commands know this interface only, so that
they work for a broker as soon as one answers it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyrocket.store import Store
    from pyrocket.views.parts import ViewName


@dataclass(frozen=True)
class StoreInfo:
    """What a store is and holds.

    store_id is empty for a directory that only Java has written. epoch: the number of recoveries
    that may have cut the log. topics, messages: without RocketMQ's own. log_start, log_end: offsets
    of the log, bytes. delay_levels: as RocketMQ's messageDelayLevel.
    """

    path: str
    store_id: str
    broker_name: str
    epoch: int
    topics: int
    messages: int
    groups: int
    log_start: int
    log_end: int
    log_file_bytes: int
    delay_levels: str


class Target(Protocol):
    """A store that commands look at and change."""

    def info(self) -> StoreInfo:
        """Return what the store is and holds."""
        ...


def open_target(directory: str) -> Target:
    """Return the target that a command names. It is opened when it is asked something."""
    return DirectoryTarget(directory)


class DirectoryTarget:
    """A store's directory, opened for each call: for reading, or for writing where it changes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def info(self) -> StoreInfo:
        """Return what the store is and holds."""
        from pyrocket.views.parts import LogPart

        with self._reading() as store:
            plan = store.views.plan("commitlog")
            parts = [part for part in plan if isinstance(part, LogPart)]
            topics = [row for row in _rows(store, "topics") if row["kind"] == "user"]
            return StoreInfo(
                path=str(store.path),
                store_id=store.uuid,
                broker_name=store.broker_name,
                epoch=store.epoch,
                topics=len(topics),
                messages=sum(row["messages"] for row in topics),
                groups=len(store.groups.all()),
                log_start=min((part.start for part in parts), default=0),
                log_end=max((part.end for part in parts), default=0),
                log_file_bytes=store.config.log_file_bytes,
                delay_levels=store.config.delay_levels_text,
            )

    @contextmanager
    def _reading(self) -> "Iterator[Store]":
        # Half a second of imports, which `--help` does not need.
        from pyrocket.store import Store

        with Store.open(self._directory, read_only=True) as store:
            yield store


def _rows(store: "Store", view: "ViewName", *, group: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of a view by column name."""
    from pyrocket.views.parts import VIEW_COLUMNS

    for part in store.views.plan(view, group=group):
        for batch in store.views.scan(part, list(VIEW_COLUMNS[view])):
            yield from batch.to_pylist()
