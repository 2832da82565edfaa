"""Filters of messages: tag expressions and RocketMQ's SQL92 conditions on properties.

`sql_parser` parses an expression into a tree (`sql_tree`), which is evaluated for the properties of
many messages (`sql_columns`) or of one message (`sql_message`). `MessageFilter` combines a SQL
condition with tags.
"""
