"""The key index: RocketMQ's index files, for finding messages by key and by unique id.

An append saves its keys as pending (`pending_keys`), a builder adds them to index files
(`index_builder`), and a query searches the files and the unindexed end of the log (`key_index`,
`key_search`).
"""
