"""Makes a replica a store of its own: `pyrocket broker promote`."""

import os

from pyrocket.base.config import StoreConfig
from pyrocket.disk.clock_file import clock_at
from pyrocket.engine.parts.follower import Follower
from pyrocket.errors import StoreReadOnlyError
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.metadata.role import Role, RoleFile
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.services.services import recovery_hooks
from pyrocket.store import Store, consumption_of, reader_of


def promote(path: str | os.PathLike[str]) -> Role:
    """Make the replica at `path` a store of its own, with the next term; return its role.

    The store is recovered as after a crash, which starts an epoch: a query that has read more than
    the replica has gets LOG_TRUNCATED and counts what is lost. If the process is killed, the next
    call, or the next writer, completes the promotion.

    Raises StoreReadOnlyError (NOT_A_REPLICA), StoreLockedError while the replica is in use, and the
    errors of `Store.open`.
    """
    layout, config = layout_of(path), StoreConfig(exclusive=True)
    check_directory(layout, create=False)
    if not RoleFile(layout).read().primary:
        raise StoreReadOnlyError(
            f"{layout.root} is not a replica.",
            remedy="Start it with `pyrocket broker`. An earlier primary becomes a replica with"
            " --replica-of.",
            code="NOT_A_REPLICA",
        )
    clock = clock_at(layout.clock)
    follower = Follower(layout, config, clock, recovery_hooks(layout, clock))
    # It lacks the timers since the store became a replica: the recovery makes another one.
    TimerIndex(layout.timers).clear()
    role = follower.promote()
    with Store.open(layout.root, config=config) as store:
        _create_missing_topics(store)
    return role


def _create_missing_topics(store: Store) -> None:
    """Create the topics of messages that arrived before the table of topics did."""
    known, queues = store.topics.all(), dict[str, int]()
    for topic, queue_id in reader_of(store).files.queues.on_disk():
        if topic not in known:
            queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    consumption_of(store).ensure_topics(queues)
