"""Checks a store after a simulated power loss."""

from pathlib import Path

from pyrocket import Store
from pyrocket.errors import PyrocketError
from pyrocket.formats.checked_json import decode_own
from pyrocket.formats.record import BLANK_MAGIC, SYS_TRANSACTION_MASK
from pyrocket.formats.record_decode import decode_record
from support.sinks import QUERY
from support.stores import FakeClock, message, reboot, scan

LATER = FakeClock(1_700_000_900_000)


def check_aftermath(path, promises, config):
    """Recover the store at `path` and check its promises."""
    _look_before_recovery(path)
    check_clean_look(path)
    with Store.open(path, create=not promises.created, config=config, clock=LATER) as store:
        found = _contents(store)
        _check_topics(store, promises)
        _check_promised(found, promises)
        _check_intact(found, promises)
        _check_whole_batches(found, promises)
        _check_published(store, found, promises)
        _check_watchers(store, found, promises)
        _check_groups(store, promises)
        _check_keys(store, found)
        for queue in sorted(found):
            _append_to(store, queue, found)
        assert (path / "abort").exists() or not found
    _check_clean_end(path, found)
    reboot(path)
    with Store.open(path, clock=LATER) as again:
        assert again.history.epoch == store.history.epoch, "an epoch began after a clean shutdown"
        assert _contents(again) == found
        _check_keys(again, found)
    _check_clean_end(path, found)


def check_snapshot(path, promises):
    """Check that an existing snapshot is complete, and that a completed snapshot exists."""
    if not path.exists():
        assert not promises.snapshot_is_there, "the snapshot is lost"
        return
    check_clean_look(path)
    expected = promises.snapshot
    with Store.open(path, read_only=True) as reader:
        assert _contents(reader) == expected
    with Store.open(path, clock=LATER) as copy:
        assert _contents(copy) == expected
        _check_keys(copy, expected)


def _look_before_recovery(path):
    """Check that readers raise only pyrocket's errors before the recovery."""
    try:
        with Store.open(path, read_only=True) as reader:
            reader.position()
            for topic in reader.topics.all():
                for queue_id in reader.offsets(topic):
                    _try_to_read(reader, topic, queue_id)
    except PyrocketError:
        return


def _try_to_read(reader, topic, queue_id):
    try:
        rows = scan(reader, topic, queue_id)
        reader.offset_by_time(topic, queue_id, LATER.now - 60_000)
        if rows:
            reader.read(topic, queue_id, rows[0][0])
    except PyrocketError:
        return


def _contents(store):
    """Return queue → (first offset, bodies); a gap in the offsets fails the test."""
    found = {}
    for topic in store.topics.all():
        for queue_id, known in store.offsets(topic).items():
            rows = scan(store, topic, queue_id, columns=("queueOffset", "body", "properties"))
            assert [at for at, _, _ in rows] == list(range(known.minimum, known.maximum))
            assert not [value for *_, pairs in rows for _, value in pairs if "\0" in value]
            found[topic, queue_id] = known.minimum, [body for _, body, _ in rows]
    return found


def _check_topics(store, promises):
    there = store.topics.all()
    for topic, counts in promises.topics.items():
        if topic in promises.doubtful:
            continue
        if topic not in there:
            assert False in counts, f"topic {topic} is missing"
        else:
            assert there[topic].read_queues in counts
    for topic in promises.deleted:
        assert topic not in there, f"topic {topic} reappeared"


def _check_promised(found, promises):
    for queue, end in promises.durable.items():
        if queue[0] in promises.doubtful or not end:
            continue
        first, bodies = found.get(queue, (0, []))
        assert first + len(bodies) >= end, f"{queue} ends at {first + len(bodies)}, not {end}"
        low, high = promises.first.get(queue, (0, 0))
        assert low <= first <= high, f"{queue} starts at {first}, not in {low} to {high}"


def _check_intact(found, promises):
    for queue, (first, bodies) in found.items():
        for offset, body in enumerate(bodies, first):
            assert body == promises.sent.get(queue, {}).get(offset), (queue, offset, body[:40])


def _check_whole_batches(found, promises):
    for bounds in promises.whole:
        kept = {
            min(max(first + len(bodies), low), high) - low == high - low
            if first + len(bodies) > low
            else None
            for queue, (low, high) in bounds.items()
            for first, bodies in [found.get(queue, (0, []))]
        }
        assert kept in ({True}, {None}), f"half a batch is left: {bounds}"


def _check_published(store, found, promises):
    """Check that all batches in the ledger exist, and no other batch of a sink."""
    last = store.sink.last(QUERY, "t")
    last = -1 if last is None else last
    assert last >= promises.published, "a published batch is published again"
    for number, bounds in promises.batches:
        ends = {queue: first + len(rows) for queue, (first, rows) in found.items()}
        there = all(ends.get(queue, 0) >= end for queue, (_, end) in bounds.items())
        assert there == (number <= last), f"batch {number} of {last} has the bounds {bounds}"


def _check_watchers(store, found, promises):
    """Check that a reader with later offsets than the store's detects the loss by its epoch."""
    for epoch, seen, least in [*promises.watchers, (promises.epoch, promises.seen, {})]:
        for queue, end in seen.items():
            if queue[0] in promises.doubtful or queue not in promises.seen:
                continue
            first, bodies = found[queue]
            floor = min(first + len(bodies), least.get(queue, end))
            cut = store.history.cut_since(epoch, *queue)
            if floor < end:
                assert cut is not None, f"{queue} was truncated from {end} to {floor} silently"
                assert cut <= floor, f"{queue} was truncated at {floor}, but {cut} is reported"
            assert cut is None or cut >= floor, f"{queue} contains {floor}, but {cut} is reported"


def _check_groups(store, promises):
    """Check that completed commits, resets and deletions of a group are durable.

    Offsets after the end of a queue, where the log was truncated, are lowered to it.
    """
    for (topic, group), offsets in promises.groups.items():
        ends = store.offsets(topic) if topic in store.topics.all() else {}
        lowered = [
            {
                queue: min(at, ends[queue].maximum) if queue in ends else at
                for queue, at in one.items()
            }
            for one in offsets
        ]
        assert store.groups.committed(group, topic) in lowered
        if group in promises.forgotten:
            assert group not in store.groups.all(), f"group {group} reappeared"
        elif {} not in offsets:
            assert group in store.groups.all(), f"group {group} is missing"


def _check_keys(store, found):
    """Check that queries find each message by its id, once, even if the key index is missing."""
    for (topic, queue_id), (first, bodies) in found.items():
        for offset in sorted({first, first + len(bodies) - 1}) if bodies else ():
            (one,) = store.read(topic, queue_id, offset, 1)
            hits = [
                (hit.queue_id, hit.queue_offset) for hit in store.lookup.query(topic, one.msg_id)
            ]
            assert hits == [(queue_id, offset)]


def _append_to(store, queue, found):
    first, bodies = found[queue]
    if queue[1] >= store.topics.get(queue[0]).write_queues:
        return
    body = f"after {queue}".encode()
    sent = store.append(message(body, *queue))
    assert sent.queue_offset == first + len(bodies)
    bodies.append(body)
    assert store.read(*queue, sent.queue_offset)[0].body == body


def _check_clean_end(path, found):
    assert not (path / "abort").exists()
    assert not list((path / "pyrocket" / "tmp").iterdir())
    check_clean_look(path)
    with Store.open(path, read_only=True) as reader:
        assert _contents(reader) == found


def check_clean_look(path):
    """Check a store without `abort`: a RocketMQ broker needs complete queues and zeros after the
    log.
    """
    if (path / "abort").exists() or not list(path.glob("commitlog/*")):
        return
    entries, end = {}, 0
    log_start = min(int(file.name) for file in path.glob("commitlog/*"))
    for place, record in _records(path):
        end = place + record.size
        if not record.sys_flag & SYS_TRANSACTION_MASK:
            entries.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = place
    for file in path.glob("commitlog/*"):
        begin = max(0, end - int(file.name))
        assert not _unblank(file.read_bytes()[begin:]).strip(b"\0"), f"{file.name}: no zeros"
    for (topic, queue_id), places in entries.items():
        folder = path / "consumequeue" / topic / str(queue_id)
        found = {at: place for at, place in _entries(folder).items() if place >= log_start}
        # The log still contains messages of deleted topics.
        begin = min(found, default=_ended(path).get(topic, {}).get(str(queue_id), 0))
        wanted = {offset: place for offset, place in places.items() if offset >= begin}
        assert found == wanted, f"{folder} is incomplete, but there is no abort"


def _records(path):
    for file in sorted(path.glob("commitlog/*")):
        data, at = file.read_bytes(), 0
        while int.from_bytes(data[at + 4 : at + 8], "big") not in (0, BLANK_MAGIC):
            record = decode_record(data[at:])
            assert record.physical_offset == int(file.name) + at
            yield int(file.name) + at, record
            at += record.size


def _ended(path):
    """Return topic → queue → the end offset when the topic was deleted."""
    own = path / "pyrocket" / "topics.json"
    return decode_own(own, own.read_bytes()).get("ended", {}) if own.exists() else {}


def _unblank(data):
    """Return the bytes after the last record without the header of a blank record."""
    return data[8:] if int.from_bytes(data[4:8], "big") == BLANK_MAGIC else data


def _entries(folder: Path):
    """Return queue offset → log offset of a queue's entries, without pre-blank entries."""
    found = {}
    for file in sorted(folder.glob("*")):
        data = file.read_bytes()
        for at in range(0, len(data), 20):
            place, size = int.from_bytes(data[at : at + 8], "big"), data[at + 8 : at + 12]
            if place:
                assert size.strip(b"\0")
                found[(int(file.name) + at) // 20] = place
    return found
