"""In a store with checksums of whole records, each record in the log has one."""

import itertools
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from pyrocket import Message, StoreConfig
from pyrocket.errors import OptionError, StoreDamagedError, StoreLockedError
from pyrocket.formats.record_crc import CRC_BYTES
from pyrocket.formats.record_decode import decode_record
from pyrocket.tools.verify.verify import verify
from support.dying import DeathError, DyingAt
from support.halves import COMMIT, MINUTE, SECOND, UNKNOWN, Listener, log_records, producer, rounds
from support.sinks import publish
from support.stores import (
    SMALL,
    batch,
    bodies,
    log_files,
    message,
    numbered,
    overwrite,
    reboot,
    scan,
)

CONFIG = replace(SMALL, log_file_bytes=16384, property_crc=True)
DAY = 86_400_000


@pytest.fixture
def store(open_store):
    store = open_store(config=CONFIG)
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


def is_sealed(record):
    return record.properties[-CRC_BYTES:].startswith(b"__CRC32#\x01")


def test_every_appended_record_has_a_checksum(store):
    store.append(message(b"single"))
    store.append_batch(batch(numbered(20, 900), 0), topic="t")
    store.append_batch(batch(numbered(20, 900), 0), topic="t", whole=True)
    publish(store, 0, numbered(20, 900))
    records = log_records(store.path)
    assert len(records) == 62
    assert all(map(is_sealed, records))
    assert len(log_files(store.path)) > 2
    assert len(scan(store, "t", 0)) == 61
    assert verify(store.path).ok


def test_copies_of_delivered_and_committed_messages_have_a_checksum_of_their_own(store, clock):
    store.append(message(b"level", delay_level=1))
    store.append(message(b"timer", deliver_at_ms=clock.now + 2000))
    listener = Listener(state=UNKNOWN, answer=COMMIT)
    with producer(store, listener=listener) as one:
        one.send(message(b"checked"))
        listener.state = COMMIT
        one.send(message(b"committed"))
        clock.now += 10 * SECOND
        rounds(one, clock, 2, every=MINUTE)
    while store.deliver_due():
        pass
    assert sorted(bodies(store)[0]) == [b"checked", b"committed", b"level", b"timer"]
    records = log_records(store.path)
    assert all(map(is_sealed, records))
    assert {record.properties.count(b"__CRC32#") for record in records} == {1}


def test_copies_written_after_checksums_were_switched_off_have_none(store, open_store, clock):
    store.append(message(b"level", delay_level=1))
    store.append(message(b"timer", deliver_at_ms=clock.now + 2000))
    with producer(store, listener=Listener(state=UNKNOWN)) as one:
        sent = one.send(message(b"half"))
    store.close()
    with open_store(config=replace(CONFIG, property_crc=False)) as other:
        clock.now += 10 * SECOND
        while other.deliver_due():
            pass
        with producer(other, listener=Listener(answer=COMMIT)) as one:
            rounds(one, clock, 2)
        assert sent.queue_offset == 0
        assert sorted(bodies(other)[0]) == [b"half", b"level", b"timer"]
        copies = [one for one in log_records(other.path) if one.topic == "t"]
        assert not any(b"__CRC32#" in one.properties for one in copies)


def test_the_last_explicit_setting_applies_whenever_the_store_is_opened_later(
    store, open_store, path
):
    store.close()
    for given, expected in [
        (None, True),
        (False, False),
        (None, False),
        (True, True),
        (None, True),
    ]:
        with open_store(config=replace(CONFIG, property_crc=given)) as one:
            one.append(message())
        assert is_sealed(log_records(path)[-1]) == expected


def test_writers_obey_a_setting_whose_writer_died_while_it_was_saved(open_store, path):
    without = replace(CONFIG, property_crc=False)
    with open_store(config=without) as store:
        store.append(message(b"first"))
        for step in itertools.count():
            with pytest.MonkeyPatch.context() as patch, suppress(DeathError):
                DyingAt(patch, step, half=False)
                open_store(config=CONFIG)
                break
            store.append(message(b"%d" % step))
            open_store(config=without).close()
        assert step > 2
        assert bodies(store)[0] == [b"first", *(b"%d" % number for number in range(step))]
        assert verify(path).ok


def test_a_writer_that_is_refused_changes_no_setting(open_store, path):
    with open_store(config=replace(CONFIG, property_crc=False)) as store:
        with pytest.raises(StoreLockedError):
            open_store(config=replace(CONFIG, exclusive=True))
        store.append(message())
    assert not is_sealed(log_records(path)[0])


@pytest.mark.parametrize("wrong", ["false", 1, np.True_])
def test_values_other_than_bool_are_rejected(wrong):
    with pytest.raises(OptionError, match="property_crc is"):
        StoreConfig(property_crc=wrong)


def test_messages_without_room_for_a_checksum_are_delivered(open_store, clock):
    """The pending record has room; its copy with a longer topic may have none."""
    topic = "t" * 100
    with open_store(config=replace(CONFIG, log_file_bytes=4096)) as store:
        store.topics.create(topic, read_queues=1, write_queues=1)
        sent = [message(b"x" * size, topic, delay_level=1) for size in range(3690, 3710)]
        for one in sent:
            store.append(one)
        clock.now += DAY
        while store.deliver_due():
            pass
        assert [one.body for one in store.read(topic, 0, 0, 50)] == [one.body for one in sent]


def flipped(path, needle):
    """Flip a bit after the first occurrence of these bytes in the log."""
    (file,) = log_files(path)
    data = file.read_bytes()
    at = data.index(needle) + len(needle)
    overwrite(file, bytes([data[at] ^ 1]), at)


@pytest.mark.parametrize("needle", [b"color\x01", b"gre", b"TopicTes", b"__CRC32"])
def test_a_flipped_bit_in_topic_or_properties_is_detected(open_store, path, needle):
    with open_store(config=CONFIG) as store:
        store.append(Message(topic="TopicTest", body=b"x", properties={"color": "green"}))
        store.append(message(b"behind"))
    flipped(path, needle)
    assert [one.code for one in verify(path).findings if one.code == "LOG_DAMAGED"]
    with open_store(read_only=True) as store:
        (queue,) = (queue for queue, known in store.offsets("TopicTest").items() if known.maximum)
        with pytest.raises(StoreDamagedError):
            [*store.scan("TopicTest", queue, 0, 1, ["properties"], verify_crc=True)]


def test_recovery_truncates_the_log_before_a_record_with_corrupt_properties(open_store, path):
    with open_store(config=CONFIG) as store:
        store.append(message(b"first"))
        store.flush()
        store.append(message(b"second", properties={"color": "green"}))
        store.close(clean=False)
    flipped(path, b"gre")
    reboot(path)
    with open_store() as store:
        assert [record.body for record in log_records(path)] == [b"first"]
        store.append(message(b"third"))
    assert verify(path).ok


def test_the_bytes_of_a_result_include_the_checksums(store):
    result = store.append_batch(batch(numbered(3, 50), 0), topic="t")
    (file,) = log_files(store.path)
    records = log_records(store.path)
    assert result.bytes == sum(record.size for record in records)
    assert decode_record(file.read_bytes()).size == records[0].size
