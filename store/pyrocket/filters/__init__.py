"""Filters of messages: tag expressions and RocketMQ's SQL92 conditions on properties.

`sql_parser` parses text into a tree (`sql_tree`), which is evaluated for the properties of many
messages (`sql_columns`) or of one (`sql_message`). `MessageFilter` combines it with tags.
"""
