"""Scenarios of operations during which power is lost: functions with a Session as parameter.
SCENARIOS contains each function of this module under its name.
"""

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


@scenario
def single_appends_sync(session):
    store = session.open(flush="sync")
    session.create(store)
    for number in range(6):
        session.append(store, queue_id=number % 2)
    session.close(store)


@scenario
def single_appends_async(session):
    store = session.open()
    session.create(store)
    for number in range(9):
        session.append(store, queue_id=number % 2)
        if number % 4 == 3:
            session.flush(store)


@scenario
def batches_sync(session):
    store = session.open(flush="sync")
    session.create(store)
    for _ in range(3):
        session.append_batch(store, queue_ids=(0, 1, 1, 0, 0))


@scenario
def batches_async(session):
    store = session.open()
    session.create(store)
    for number in range(5):
        session.append_batch(store, queue_ids=(0, 1, 1, 0, 0))
        if number == 2:
            session.flush(store)


@scenario
def files_roll_over(session):
    """Append so much that many log files of 4 KiB and queue files of ten entries are created."""
    store = session.open()
    session.create(store, queues=1)
    for number in range(4):
        session.append_batch(store, queue_ids=[0] * 9, size=500)
        if number == 1:
            session.flush(store)
    session.close(store)


@scenario
def files_roll_over_sync(session):
    store = session.open(flush="sync")
    session.create(store, queues=1)
    for _ in range(12):
        session.append(store, size=1500)


@scenario
def much_is_not_durable(session):
    """Append so much at once that a recovery has to truncate several log and queue files."""
    store = session.open(flush="manual")
    session.create(store, queues=1)
    session.append(store)
    session.flush(store)
    for _ in range(3):
        session.append_batch(store, queue_ids=[0] * 12, size=900)


@scenario
def topics_come_and_go(session):
    store = session.open()
    session.create(store, "t")
    session.append_batch(store, "t")
    session.update(store, "t", 3)
    session.create(store, "u", 1)
    session.append(store, "u")
    session.flush(store)
    session.delete(store, "t")
    session.create(store, "t")
    session.append(store, "t")
    session.delete(store, "u")
    session.append_batch(store, "t")
    session.close(store)


@scenario
def deleted_before_it_was_durable(session):
    """Delete topics: the end offsets of a deleted topic are durable at once, its messages may not
    be.
    """
    store = session.open()
    session.create(store, "t", 1)
    session.append_batch(store, "t", (0, 0, 0))
    session.delete(store, "t")
    session.create(store, "t", 1)
    session.append(store, "t")
    session.flush(store)


@scenario
def close_and_reopen(session):
    store = session.open()
    session.create(store)
    session.append_batch(store)
    session.close(store)
    session.clock.now += 10_000
    store = session.open(flush="sync")
    session.append_batch(store, queue_ids=[0] * 8, size=600)
    session.close(store)
    session.clock.now += 10_000
    store = session.open()
    session.append(store)
    session.append_batch(store)
    session.close(store)


@scenario
def two_writers(session):
    one, two = session.open(flush="sync"), session.open()
    session.create(one)
    for _ in range(3):
        session.append(two)
        session.append_batch(one)
        session.append_batch(two)
    session.close(one)
    session.append(two)
    session.close(two)


@scenario
def left_without_a_clean_end(session):
    store = session.open()
    session.create(store)
    session.append_batch(store)
    session.close(store, clean=False)
    store = session.open()
    session.append(store)
    session.flush(store)
    session.append(store)


@scenario
def long_properties(session):
    """Append records whose properties span several sectors; no checksum covers them."""
    store = session.open(flush="manual")
    session.create(store, queues=1)
    for size in (300, 900, 1400, 2000):
        session.append(store, size=0, properties={"long": "p" * size})
    session.flush(store)
    for _ in range(10):
        session.append(store, size=0, properties={"long": "q" * 1500})


@scenario
def whole_batches(session):
    """Append batches that are durable completely or not at all, some of which fill several log
    files.
    """
    store = session.open()
    session.create(store)
    session.append(store)
    session.append_batch(store, queue_ids=(0, 1, 1, 0), whole=True)
    session.append_batch(store, queue_ids=[0, 1] * 6, size=700, whole=True)
    session.append_batch(store)
    session.append_batch(store, queue_ids=[1, 0] * 2, whole=True)
    session.close(store)


@scenario
def batches_of_a_sink(session):
    """Publish batches, each once or not at all; another run retries one batch, and some fill
    several files.
    """
    store = session.open()
    session.create(store)
    session.append(store)
    session.publish(store, 0)
    session.publish(store, 1, queue_ids=[0, 1] * 6, size=700)
    session.append_batch(store)
    session.publish(store, 1, queue_ids=[0, 1] * 6, size=700, run="run-2")
    session.publish(store, 2, run="run-2")
    session.close(store)
    store = session.open()
    session.publish(store, 3, queue_ids=[1, 0] * 3, run="run-3")


@scenario
def batches_of_a_sink_are_cleaned(session):
    """Delete all messages of published batches, which must still be known as published."""
    store = session.open()
    session.create(store)
    session.publish(store, 0)
    for number in (1, 2):
        session.append_batch(store, queue_ids=[0, 1, 0, 0] * 4, size=600)
        session.clean(store, total_bytes=9_000)
        session.publish(store, number - 1)
        session.publish(store, number, queue_ids=[0, 1] * 3, size=400)
    session.append_batch(store, queue_ids=[0, 1, 0, 0] * 6, size=600)
    session.clean(store, total_bytes=9_000)


@scenario
def old_files_are_cleaned(session):
    store = session.open()
    session.create(store)
    for _ in range(3):
        session.append_batch(store, queue_ids=[0, 1, 0, 0] * 4, size=600)
    session.create(store, "quiet", 1)
    session.append(store, "quiet")
    session.flush(store)
    session.clean(store, total_bytes=12_000)
    session.append_batch(store, queue_ids=[0, 0] * 6, size=900)
    session.clean(store, total_bytes=9_000)
    session.append(store, "quiet")
    session.close(store)


@scenario
def files_a_snapshot_shares(session):
    """Take a snapshot, and then change the store: the snapshot's hard-linked files must not
    change.
    """
    store = session.open(flush="sync")
    session.create(store)
    session.append_batch(store, queue_ids=[0, 1, 0, 0] * 4, size=600)
    session.snapshot(store)
    session.append_batch(store, queue_ids=[0, 1, 0, 0] * 2, size=600)
    session.close(store)


@scenario
def a_snapshot_outlives_the_power(session):
    """Take a snapshot of a store that is not durable: the snapshot is durable when the call
    returns.
    """
    store = session.open(flush="manual")
    session.create(store)
    session.append_batch(store, queue_ids=[0, 1, 0, 0] * 6, size=600)
    session.append(store, keys=["k"])
    session.snapshot(store)
    session.append_batch(store, queue_ids=[0, 1, 0, 0] * 2, size=600)


@scenario
def groups_commit(session):
    """Commit offsets of groups, which are durable at once, even if the messages are not yet
    durable.
    """
    store = session.open(flush="manual")
    session.create(store)
    session.append_batch(store, queue_ids=(0, 0, 1, 0))
    session.commit(store, "g", {0: 1})
    session.commit(store, "g", {0: 3, 1: 1})
    session.commit(store, "g", {0: 2})
    session.commit(store, "h", {1: 1})
    session.flush(store)
    session.reset(store, "g", {0: 0})
    session.append_batch(store, queue_ids=(0, 1))
    session.commit(store, "h", {0: 4, 1: 2})
    session.delete_group(store, "g")
    session.commit(store, "g", {1: 2})
    session.delete_group(store, "h")
    session.close(store)
