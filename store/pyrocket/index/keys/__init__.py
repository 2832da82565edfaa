"""The key index: RocketMQ's index files, by which messages are found by key and unique id.

An append notes its keys (`pending_keys`), a builder moves them into files (`index_builder`), and a
look-up searches files and what is not in them yet (`key_index`, `key_search`).
"""
