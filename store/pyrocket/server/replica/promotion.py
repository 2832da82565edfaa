"""Makes a replica a store of its own: `pyrocket broker promote`."""

import os
from functools import partial

from pyrocket.base.config import StoreConfig
from pyrocket.broker.pop.offsets import commit_saved_offsets
from pyrocket.disk.clock_file import clock_at
from pyrocket.engine.parts.follower import Follower
from pyrocket.errors import StoreReadOnlyError
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.metadata.role import Role, RoleFile
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.services.services import recovery_hooks
from pyrocket.store import Store, consumption_of


def promote(path: str | os.PathLike[str]) -> Role:
    """Make the replica at `path` a store of its own, with the next term; return its role.

    The store is recovered as after a crash, which starts an epoch: a query that has read more than
    the replica has gets LOG_TRUNCATED and counts what is lost. A part of an exactly-once batch is
    saved and cut off. If the process is killed, the next call, or the next writer, completes the
    promotion.

    The offsets of groups that receive by pops become those that the log has.

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
    opens = partial(Follower, layout, config, clock, recovery_hooks(layout, clock))
    follower = opens()
    if (start := follower.torn_batch()) is not None:
        follower.cut(start)
        follower = opens()
    # It lacks the timers since the store became a replica: the recovery rebuilds it from the log.
    TimerIndex(layout.timers).clear()
    role = follower.promote()
    with Store.open(layout.root, config=config) as store:
        commit_saved_offsets(consumption_of(store))
    return role
