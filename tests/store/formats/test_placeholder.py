"""A placeholder has the topic and offsets of the lost message, or of a topic without queues."""

import pytest
from pyrocket.formats.placeholder import LostMessage, encode_placeholder
from pyrocket.formats.record import SYS_ROLLBACK
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.system_topics import DAMAGED_TOPIC


@pytest.mark.parametrize("lost", [LostMessage("t", 3, 7), None], ids=["known", "unknown"])
def test_a_placeholder_has_the_topic_and_queue_offset_of_the_lost_message_if_known(lost):
    record = decode_record(encode_placeholder(b"\xab" * 300, 4096, lost, 5))
    place = LostMessage(record.topic, record.queue_id, record.queue_offset)
    assert place == (lost or LostMessage(DAMAGED_TOPIC, 0, 0))
    assert (record.size, record.physical_offset, record.store_timestamp) == (300, 4096, 5)
    assert bool(record.sys_flag & SYS_ROLLBACK) is (lost is None)
