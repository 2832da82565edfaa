"""Bytes to values and Arrow columns, and back: pure, without files and without a clock.

A module that describes bytes on disk begins with their table; no other room knows an offset inside
a record. Formats follow Apache RocketMQ 4.9.8 (`CommitLog`, `ConsumeQueue`, `MessageDecoder`) and
are big-endian, unless a table says otherwise.
"""
