"""`createIfMissing` on a source, and the checks of the store, the topics and the group.

A restarted query must not create its store: if a disk is not mounted, that would be an empty store
in place of the real one. Spark requests the initial offset of a new query, and of a restarted one
only to replay its first micro-batch, so the store is created at that call.
"""

from pyrocket.config import DEFAULT_QUEUES

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.group_follower import check_group_can_follow
from pyspark_pyrocket.source.planner import topics_to_read
from pyspark_pyrocket.transport.interface import Target


def prepare_source(target: Target, options: ReadOptions, *, may_create_store: bool = False) -> None:
    """Check the store, its topics, the group and the topic for bad records; create what is missing.

    With `createIfMissing` a missing store is not an error: it is created if `may_create_store`;
    otherwise the checks are left to the call that creates it. Raises PyrocketError.
    """
    if options.create_if_missing:
        if not may_create_store and target.find_source() is None:
            return
        _create_missing(target, options)
    topics_to_read(target.open_source(), options)
    check_group_can_follow(target, options)
    prepare_bad_records(target, options)


def _create_missing(target: Target, options: ReadOptions) -> None:
    """Create the store and the named topics; open it for writing only if one is missing."""
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
    """Return the number of queues of a new topic: the default, or more if more are assigned."""
    return max(DEFAULT_QUEUES, *(queue + 1 for queue in asked.queues.get(topic, (0,))))
