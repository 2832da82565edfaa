"""In log ranges with checksums of whole records, a record without a checksum is damaged."""

import itertools
import json
import os
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.errors import MessageError, SinkError, StoreDamagedError
from pyrocket.tools.verify.verify import verify
from support.halves import COMMIT, MINUTE, UNKNOWN, Listener, log_records, producer, rounds
from support.sinks import numbered as numbered_batch
from support.sinks import publish, stage
from support.slices import scan_ranges
from support.stores import SMALL, log_files, message, overwrite, reboot, scan

CONFIG = replace(SMALL, log_file_bytes=65536, property_crc=True)
PLAIN = replace(CONFIG, property_crc=False)
NAME = b"__CRC32#\x01"


@pytest.fixture
def store(open_store):
    store = open_store(config=CONFIG)
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


def hide(path, body=b"hidden"):
    """Make the checksum of the record with this body look like another property.

    Two bits of its name are flipped, and one of its store host.
    """
    for file in log_files(path):
        data = file.read_bytes()
        if body not in data:
            continue
        at = data.rindex(body)
        name = data.index(NAME, at)
        overwrite(file, b"\x5e\x5f\x43\x52\x43\x33\x32\x22", name)
        start = data.rindex(b"\xda\xa3\x20\xa7", 0, at) - 4
        overwrite(file, bytes([data[start + 64] ^ 1]), start + 64)
        return
    raise AssertionError("no such record")


def is_found(path):
    text = "checksum mismatch of the whole record"
    return any(text in finding.what for finding in verify(path).findings)


def fits(store, size):
    """Append a body of this size; return False if the record would exceed a log file."""
    try:
        store.append(message(b"x" * size))
    except MessageError:
        return False
    return True


def saved(path):
    return json.loads((path / "pyrocket/store.json").read_text())["propertyCrcRanges"]


def test_a_record_whose_checksum_was_hidden_is_damaged_to_readers_and_verify(store, path):
    store.append(message(b"hidden"))
    store.append(message(b"next"))
    store.close()
    assert not is_found(path)
    hide(path)
    assert is_found(path)
    with Store.open(path, read_only=True) as reader:
        with pytest.raises(StoreDamagedError, match="checksum mismatch of the whole record"):
            scan(reader, "t", 0)
        with pytest.raises(StoreDamagedError, match="checksum mismatch of the whole record"):
            reader.read("t", 0, 0)
        with pytest.raises(StoreDamagedError):
            scan_ranges(reader, "t", [(0, 0, 2)], verify_crc=True) or scan(reader, "t", 0)


def deliver_a_level(store, clock):
    store.append(message(b"hidden", delay_level=1))


def deliver_a_timer(store, clock):
    store.append(message(b"hidden", deliver_at_ms=clock.now + 2000))


def put_back_a_half_message(store, clock):
    with producer(store, listener=Listener(state=UNKNOWN)) as one:
        one.send(message(b"hidden"))
        rounds(one, clock, 2, every=MINUTE)


def commit_a_half_message(store, clock):
    with producer(store, listener=Listener(state=COMMIT)) as one:
        one.send(message(b"hidden"))


def publish_a_batch(store, clock):
    publish(store, 0, [b"hidden"])


@pytest.mark.parametrize(
    "write",
    [
        deliver_a_level,
        deliver_a_timer,
        put_back_a_half_message,
        commit_a_half_message,
        publish_a_batch,
    ],
)
def test_copies_appended_by_services_are_damaged_if_their_checksum_is_hidden(
    store, path, clock, write
):
    write(store, clock)
    clock.now += 10_000
    while store.deliver_due():
        pass
    store.close()
    assert not is_found(path)
    hide(path)
    assert is_found(path)


def test_ranges_begin_and_end_at_the_log_offsets_at_which_the_setting_was_changed(open_store, path):
    ends = []
    for config in (PLAIN, CONFIG, CONFIG, PLAIN, CONFIG):
        with open_store(config=config) as one:
            one.append(message(b"x" * 50))
            ends.append(one.position().published)
    assert saved(path) == [[ends[0], ends[2]], [ends[3], None]]
    assert not is_found(path)


def test_rows_staged_before_checksums_were_switched_on_must_be_staged_again(open_store, path):
    with open_store(config=PLAIN) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        one = numbered_batch(0)
        staged = [stage(store, one, [b"row"])]
    with open_store(config=CONFIG) as store:
        with pytest.raises(SinkError, match="STAGED_WITHOUT_CRC"):
            store.sink.publish(one, staged)
        store.sink.publish(one, [stage(store, one, [b"row"])])
        assert [body for _, body in scan(store, "t", 0)] == [b"row"]
    assert not is_found(path)


def test_records_without_room_for_a_checksum_are_valid(open_store, path):
    config = replace(CONFIG, log_file_bytes=4096)
    with open_store(config=config) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        longest = next(size for size in itertools.count(3880) if not fits(store, size + 1))
    sealed = [NAME in record.properties for record in log_records(path)]
    assert 0 < sum(sealed) < len(sealed)
    assert longest == len(log_records(path)[-1].body)
    assert verify(path).ok
    with open_store(read_only=True) as store:
        assert len(scan(store, "t", 0)) == len(sealed)


def test_ranges_are_invalid_after_a_broker_used_the_store(store, path, open_store):
    store.append(message(b"hidden"))
    store.append(message(b"next"))
    store.close()
    os.utime(path / "lock", ns=(0, 12345))
    hide(path)
    assert not is_found(path), "without a range the store host decides, which was changed, too"
    with open_store(config=CONFIG) as again:
        end = again.position().published
        again.append(message(b"later"))
    assert saved(path) == [[end, None]]


def test_recovery_that_truncates_the_log_truncates_the_ranges(store, path, open_store):
    store.append(message(b"first"))
    store.flush()
    end = store.position().published
    store.append(message(b"lost"))
    store.close(clean=False)
    data = log_files(path)[-1].read_bytes()
    overwrite(log_files(path)[-1], b"\0" * 4, data.index(b"lost"))
    reboot(path)
    with open_store(config=PLAIN) as again:
        again.append(message(b"plain"))
    assert saved(path)[-1][1] == end
    assert not is_found(path)
