"""`createIfMissing` on a source, and what else a query needs besides its options.

A query that is restarted must not create its store: it would be an empty one, beside the real one
on a disk that is not mounted. Spark asks a new query for its initial offset, and a restarted one
only if it has to replay its first micro-batch; so that is when a store is created.
"""

from pyrocket.config import DEFAULT_QUEUES

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.group_follower import check_group_can_follow
from pyspark_pyrocket.source.planner import topics_to_read
from pyspark_pyrocket.transport.path import PathTarget


def prepare_source(
    target: PathTarget, options: ReadOptions, *, may_create_store: bool = False
) -> None:
    """Check the store, its topics and what the query writes to, and create what it may create.

    With `createIfMissing` a missing store is no error: it is created if it may be, and otherwise
    nothing is checked until then. Raises PyrocketError.
    """
    if options.create_if_missing:
        if not may_create_store and target.find_source() is None:
            return
        _create_missing(target, options)
    topics_to_read(target.open_source(), options)
    check_group_can_follow(target, options)
    prepare_bad_records(target, options)


def _create_missing(target: PathTarget, options: ReadOptions) -> None:
    """Create the store and the named topics that are missing; open it for writing only then."""
    asked, known = options.subscription, target.find_source()
    if known is not None and known.topics().keys() >= set(asked.topics):
        return
    sink = target.open_sink(create=True)
    try:
        for topic in asked.topics:
            sink.prepare(topic, queues=_queues(asked, topic))
    finally:
        sink.close(clean=False)


def _queues(asked: Subscription, topic: str) -> int:
    """Return how many queues a new topic gets: as many as usual, or all that are assigned."""
    return max(DEFAULT_QUEUES, *(queue + 1 for queue in asked.queues.get(topic, (0,))))
