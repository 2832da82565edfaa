"""The key index: RocketMQ's index files, for finding messages by key and by unique id.

An append saves its keys as pending keys (`pending_keys`). A builder adds pending keys to index
files (`index_builder`). A query searches the files and the unindexed end of the log (`key_index`,
`key_search`).
"""
