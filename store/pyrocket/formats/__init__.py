"""Encodes and decodes bytes, values and Arrow columns: pure functions, without files or a clock.

A module for bytes on disk begins with a table of them; no other package knows positions inside a
record. Formats follow Apache RocketMQ 4.9.8 (`CommitLog`, `ConsumeQueue`, `MessageDecoder`) and are
big-endian unless stated otherwise.
"""
