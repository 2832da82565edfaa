"""A recovery of everything: log, queues, key index, words and the services' cursors."""

from pyrocket.cursors import restore_cursors
from pyrocket.disk.durable import clear_folder
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import CHECKPOINT_TIME, FAILED, STORE_TIME, StatePage
from pyrocket.errors import PyrocketError
from pyrocket.index.checkpointer import read_checkpoint
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.index.key_builder import KeyBuilder
from pyrocket.index.queues import Queues
from pyrocket.index.rebuild import recover
from pyrocket.log.commit_log import CommitLog
from pyrocket.redelivery import skip_delivered
from pyrocket.services.epochs import Epochs
from pyrocket.services.queue_ends import QueueEnds
from pyrocket.services.topics import Topics
from pyrocket.timer_recovery import settle_timers

_YEAR_MS = 365 * 24 * 3_600_000


def recover_alone(
    layout: Layout,
    log: CommitLog,
    queues: Queues,
    dispatcher: Dispatcher,
    keys: KeyBuilder,
    page: StatePage,
    now_ms: int,
    topics: Topics,
) -> None:
    """Make the words say what the files hold; the caller has the store alone, and vouches then.

    Raises StoreDamagedError, StoreFailedError, StoreUnavailableError.
    """
    page.distrust()
    clear_folder(layout.scratch)
    clean = not layout.abort.exists() and not page[FAILED]
    checkpoint = read_checkpoint(layout)
    try:
        ends = recover(
            log,
            queues,
            dispatcher,
            page,
            checkpoint,
            clean=clean,
            topics=topics.all(),
            least=QueueEnds(layout).read(),
        )
        if not clean:
            Epochs(layout).begin(ends)
        keys.settle(clean=clean)
        restore_cursors(layout, page, queues)
        settle_timers(layout, log, queues, page, clean=clean)
        if not clean:
            skip_delivered(log, queues, page)
    except PyrocketError:
        page.give_up()
        raise
    page[CHECKPOINT_TIME] = now_ms
    if page[STORE_TIME] > now_ms + _YEAR_MS:
        # No checksum covers a record's time, and later ones must not follow a flipped bit.
        page[STORE_TIME] = now_ms
