"""The records of RocketMQ's message trace."""

import pytest
from pyrocket.formats.trace import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    decode,
    encode,
    trace_keys,
)

PUB = Pub(7, "DefaultRegion", "g", "t", "ID", "tag", "k1 k2", "h:1", 3, 2, 0, "OFFSET", True)
BEFORE = SubBefore(8, "DefaultRegion", "g", "R", "ID", 1, "k1 k2")
AFTER = SubAfter("R", "ID", 5, False, "k1", 4, 9, "g")
END = EndTransaction(
    9, "DefaultRegion", "g", "t", "ID", None, None, "h:1", 2, "TX", "COMMIT_MESSAGE", True
)


def test_records_have_the_fields_of_rocketmqs_encoder_in_its_order():
    assert encode(PUB) == (
        "Pub\x017\x01DefaultRegion\x01g\x01t\x01ID\x01tag\x01k1 k2\x01h:1\x013\x012\x010\x01OFFSET"
        "\x01true\x02"
    )
    assert encode(BEFORE) == "SubBefore\x018\x01DefaultRegion\x01g\x01R\x01ID\x011\x01k1 k2\x02"
    assert encode(AFTER) == "SubAfter\x01R\x01ID\x015\x01false\x01k1\x014\x019\x01g\x02"
    assert encode(END) == (
        "EndTransaction\x019\x01DefaultRegion\x01g\x01t\x01ID\x01null\x01null\x01h:1\x012\x01TX"
        "\x01COMMIT_MESSAGE\x01true\x02"
    )


def test_a_body_of_several_records_is_decoded():
    records = [PUB, BEFORE, AFTER, END]
    assert decode("".join(map(encode, records))) == records
    assert decode("") == []


def test_records_of_unknown_types_are_skipped():
    assert decode(f"Recall\x011\x01r\x01g\x01t\x01ID\x01true\x02{encode(AFTER)}") == [AFTER]


def test_shorter_records_of_old_clients_are_decoded():
    *first, _, success = encode(PUB).rstrip("\x02").split("\x01")
    assert decode("\x01".join([*first, success])) == [PUB._replace(offset_message_id="")]
    short = encode(AFTER).split("\x01")[:7]
    assert decode("\x01".join(short)) == [AFTER._replace(timestamp=0, group="")]


def test_a_longer_record_is_decoded_without_the_client_host():
    assert decode(encode(PUB).replace("\x02", "\x01host\x02")) == [PUB]


def test_separators_in_the_values_of_fields_are_omitted():
    hostile = AFTER._replace(message_id="\x02Pub\x011")
    assert decode(encode(hostile)) == [AFTER._replace(message_id="Pub1")]
    assert trace_keys(hostile) == ["Pub1", "k1"]


def test_the_keys_of_a_record_are_the_message_id_and_the_keys_of_the_message():
    assert trace_keys(PUB) == ["ID", "k1", "k2"]
    assert trace_keys(END) == ["ID"]


def test_a_malformed_number_is_rejected():
    with pytest.raises(ValueError, match="seven"):
        decode(encode(PUB).replace("\x017\x01", "\x01seven\x01"))
