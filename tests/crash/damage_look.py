"""Reads a damaged store in every way and checks that only written messages are returned."""

from dataclasses import dataclass, field

from crash.damage import DELETED, LATER, NOW, RECREATED, ROWS
from pyrocket import SCAN_COLUMNS, PyrocketError, Store

COLUMNS = [name for name in SCAN_COLUMNS if name != "bodyText"]
CHECKED = ("queueOffset", "physicalOffset", "storeSize", "body")
_STEP, _KEYS_STEP = 5, 11


@dataclass
class Truth:
    """The written messages, as (topic, queue) → queue offset → message, and key → log offsets.
    `older` contains the messages of deleted topics: without `pyrocket/topics.json`, the deletion is
    unknown, and a recovery restores these messages.
    """

    messages: dict
    older: dict
    keys: dict
    epoch: int

    @classmethod
    def of(cls, root):
        with Store.open(root, read_only=True) as store:
            messages = {
                (topic, queue_id): {
                    each.queue_offset: each for each in _read(store, topic, queue_id)
                }
                for topic in store.topics.all()
                if topic != LATER
                for queue_id in store.offsets(topic)
            }
            older = {
                (name, 0): {row: store.lookup.query(name, f"{name}{row}")[0] for row in range(ROWS)}
                for name in (DELETED, RECREATED)
            }
            keyed = [m for m in _all(messages) if m.keys]
            wanted = {(m.topic, m.keys[0]) for m in keyed[::_KEYS_STEP]} | {
                (DELETED, f"{DELETED}3")
            }
            keys = {key: [m.physical_offset for m in store.lookup.query(*key)] for key in wanted}
            assert all(keys.values())
            return cls(messages, older, keys, store.history.epoch)

    def of_queue(self, queue):
        """Return queue offset → message, for all messages that a queue may contain."""
        return {**self.older.get(queue, {}), **self.messages.get(queue, {})}

    def with_more(self, sent):
        """Return a copy that also contains these messages."""
        messages = {key: dict(known) for key, known in self.messages.items()}
        for message in sent:
            messages.setdefault((message.topic, message.queue_id), {})[message.queue_offset] = (
                message
            )
        return Truth(messages, self.older, self.keys, self.epoch)


def _all(messages):
    return [message for queue in messages.values() for message in queue.values()]


def _read(store, topic, queue_id):
    known, found = store.offsets(topic)[queue_id], []
    while known.minimum + len(found) < known.maximum:
        found += store.read(topic, queue_id, known.minimum + len(found), 32)
    return found


@dataclass
class Look:
    """The messages and errors that a reader got from a store."""

    all_columns: bool = False
    found: dict = field(default_factory=dict)
    keys: dict = field(default_factory=dict)
    errors: list = field(default_factory=list)
    epoch: int = 0
    cuts: dict = field(default_factory=dict)
    minima: dict = field(default_factory=dict)

    def attempt(self, ask, *arguments):
        """Return the result of the call; for a pyrocket error, record its code and return None."""
        try:
            return ask(*arguments)
        except PyrocketError as error:
            self.errors.append(error.code)
            return None

    def lacks(self, truth):
        """Return the written messages that no read returned, by queue."""
        return {
            queue: lost
            for queue, known in truth.messages.items()
            if (lost := sorted(known.keys() - self.found.get(queue, set())))
        }


def look(root, truth, *, all_columns=False):
    """Read everything; fail if a returned message differs from the written one."""
    seen = Look(all_columns)
    store = seen.attempt(lambda: Store.open(root, read_only=True))
    if store is None:
        return seen
    with store:
        seen.attempt(store.position)
        seen.epoch = seen.attempt(lambda: store.history.epoch)
        for topic in {*(seen.attempt(store.topics.all) or ())} - {LATER}:
            for queue_id in seen.attempt(store.offsets, topic) or {}:
                _look_at_queue(seen, store, truth, topic, queue_id)
        for key in truth.keys:
            _look_for_key(seen, store, truth, key)
        for group in seen.attempt(store.groups.all) or {}:
            seen.attempt(store.groups.committed, group, "orders")
    return seen


def _look_at_queue(seen, store, truth, topic, queue_id):
    known = seen.attempt(lambda: store.offsets(topic)[queue_id])
    if known is None:
        return
    assert 0 <= known.minimum <= known.maximum
    seen.minima[topic, queue_id] = known.minimum
    written = truth.of_queue((topic, queue_id))
    for message in seen.attempt(_read, store, topic, queue_id) or []:
        _check(message, written)
    if seen.all_columns:
        seen.attempt(_scan_all, store, topic, queue_id, known, written)
    whole = known.minimum, known.maximum
    rows = seen.attempt(_scan, store, topic, queue_id, whole, written)
    if rows is None:
        rows = _scan_in_pieces(seen, store, topic, queue_id, whole, written)
    seen.found[topic, queue_id] = set(rows)
    for time in (0, NOW + 20_000, 2**62):
        at = seen.attempt(store.offset_by_time, topic, queue_id, time)
        assert at is None or known.minimum <= at <= known.maximum
    cut = seen.attempt(store.history.cut_since, truth.epoch, topic, queue_id)
    seen.cuts[topic, queue_id] = cut


def _scan_all(store, topic, queue_id, known, written):
    """Scan all columns without verifying checksums; compare only the log offsets."""
    places = []
    for part in store.scan(topic, queue_id, known.minimum, known.maximum, COLUMNS):
        part.validate(full=True)
        places += part.column("physicalOffset").to_pylist()
    offsets = range(known.minimum, known.maximum)
    assert places == [written[offset].physical_offset for offset in offsets]


def _scan_in_pieces(seen, store, topic, queue_id, whole, written):
    """Scan in small ranges; return the offsets of all readable ranges."""
    rows = []
    for low in range(*whole, _STEP):
        bounds = low, min(low + _STEP, whole[1])
        rows += seen.attempt(_scan, store, topic, queue_id, bounds, written) or ()
    return rows


def _scan(store, topic, queue_id, bounds, written):
    """Check the columns whose values checksums verify; return the offsets."""
    rows = []
    for part in store.scan(topic, queue_id, *bounds, CHECKED, verify_crc=True):
        rows += zip(*(part.column(name).to_pylist() for name in CHECKED), strict=True)
    for offset, *values in rows:
        known = written[offset]
        assert values == [known.physical_offset, known.store_size, known.body]
    assert [row[0] for row in rows] == list(range(*bounds))
    return [row[0] for row in rows]


def _check(message, written):
    known = written[message.queue_offset]
    for name in ("body", "queue_offset", "physical_offset", "store_size", "queue_id", "topic"):
        assert getattr(message, name) == getattr(known, name), name


def _look_for_key(seen, store, truth, key):
    messages = seen.attempt(store.lookup.query, *key)
    if messages is None:
        return
    for message in messages:
        _check(message, truth.of_queue((message.topic, message.queue_id)))
    seen.keys[key] = [message.physical_offset for message in messages]
