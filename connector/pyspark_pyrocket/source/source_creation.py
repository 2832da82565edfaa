"""`createIfMissing` on a source, and what else a query needs besides its options.

A query that is restarted must not create its store: it would be an empty one, beside the real one
on a disk that is not mounted. Spark asks a new query for its initial offset, and a restarted one
only if it has to replay its first micro-batch; so that is when a store is created.
"""

from pyrocket import Store
from pyrocket.config import DEFAULT_QUEUES

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.group_follower import check_group_can_follow
from pyspark_pyrocket.source.planner import topics_to_read
from pyspark_pyrocket.transport.path import shared_store, shared_store_or_none


def prepare_source(options: ReadOptions, *, may_create_store: bool = False) -> None:
    """Check the store, its topics and what the query writes to, and create what it may create.

    With `createIfMissing` a missing store is no error: it is created if it may be, and otherwise
    nothing is checked until then. Raises PyrocketError.
    """
    if options.create_if_missing:
        if not may_create_store and shared_store_or_none(options.path) is None:
            return
        _create_missing(options)
    topics_to_read(shared_store(options.path), options)
    check_group_can_follow(options)
    prepare_bad_records(options)


def _create_missing(options: ReadOptions) -> None:
    """Create the store and the named topics that are missing; open it for writing only then."""
    asked, known = options.subscription, shared_store_or_none(options.path)
    if known is not None and known.topics.all().keys() >= set(asked.topics):
        return
    store = Store.open(options.path, create=True)
    try:
        for topic in asked.topics:
            queues = _queues(asked, topic)
            store.topics.create(topic, read_queues=queues, write_queues=queues)
    finally:
        store.close(clean=False)


def _queues(asked: Subscription, topic: str) -> int:
    """Return how many queues a new topic gets: as many as usual, or all that are assigned."""
    return max(DEFAULT_QUEUES, *(queue + 1 for queue in asked.queues.get(topic, (0,))))
