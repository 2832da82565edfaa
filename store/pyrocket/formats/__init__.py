"""Bytes as values, one message or one Arrow batch at a time: pure, no files, no clock.

Each module that describes bytes on disk begins with their table; nothing outside this package
knows an offset inside a record. Formats follow Apache RocketMQ 4.9.8 (`CommitLog`,
`ConsumeQueue`, `MessageDecoder`) and are big-endian.

record, record_decode    one CommitLog record: the table and the writer, the reader
record_chain             finding records: each says where the next begins
record_fields            many records: their fields, gathered and checked
record_columns           many records: bytes → Arrow columns
send_columns             what a batch to append may look like
record_batch             Arrow columns → many records
property_crc, crc_room, sealed_ranges   RocketMQ 5's checksum over a whole record
properties               the properties block of one record; RocketMQ's own names
property_columns         the properties blocks of many records as columns
compression              compressed bodies
queue_entry              ConsumeQueue entries
key_table                the hash table of the key index
checkpoint               what was surely on disk, and when
message_id               UNIQ_KEY and the offset message id
java_hash                String.hashCode, one string or a column
fastjson, own_json       RocketMQ's dialect of JSON; our own files, with checksums
runs                     runs of bytes inside a buffer as Arrow arrays
"""
