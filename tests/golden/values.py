"""Bytes that Apache RocketMQ 4.9.8 has written, or has read with all fields."""

UNIQ_KEY = "7F00000100002A139F55000000010001"
"""The sender's id in RECORD."""

RECORD = bytes.fromhex(
    "000000a8daa320a73610a6860000000100000000000000000000000700000000000000ac00000000"
    "00000174876e80007f0000010000d43100000174876e807b7f00000100002a9f0000000000000000"
    "000000000000000568656c6c6f09546f70696354657374003f544147530154616741024b45595301"
    "4f524445523102554e49515f4b455901374630303030303130303030324131333946353530303030"
    "3030303130303031"
)
"""A v1 record of `hello`."""

RECORD_FIELDS = {
    "topic": "TopicTest",
    "queue_id": 1,
    "queue_offset": 7,
    "physical_offset": 172,
    "body": b"hello",
    "properties": f"TAGS\x01TagA\x02KEYS\x01ORDER1\x02UNIQ_KEY\x01{UNIQ_KEY}".encode(),
    "born_timestamp": 1600000000000,
    "born_host": (bytes((127, 0, 0, 1)), 54321),
    "store_timestamp": 1600000000123,
    "store_host": (bytes((127, 0, 0, 1)), 10911),
}
"""The values in RECORD."""

LOOPBACK_V6 = bytes(15) + b"\x01"

HASHES = {
    "TagA": 2598919,
    "TagB": 2598920,
    "d": 100,
    "Aa": 2112,
    "BB": 2112,
    "中文": 646394,
    "Tag-10": -1797423790,
    "polygenelubricants": -2147483648,
    "": 0,
}
"""String.hashCode, computed by the JVM."""

QUEUES_OF_FOUR = {"ORDER1": 1, "ORDER2": 0, "ORDER3": 3, "Tag-10": 2}
"""SelectMessageQueueByHash over four queues."""

DEFLATED = "785eedc13101000000c2a0aceb5fc2147e4001000000006f034b6f66f2"
"""5000 times `a`, compressed by Java's zlib at level 5, in hex."""

CHECKSUMS = {b"hello": 907060870, b"a": 1756872259, b"": 0}
"""Body → bodyCRC."""
