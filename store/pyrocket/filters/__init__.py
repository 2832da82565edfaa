"""Which messages a reader wants: tags, and RocketMQ's SQL on properties. Pure.

tags            `A || B`
sql_tree        what a SQL expression says
sql_tokens, sql_parser   its text → tree
numbers         texts as the numbers that Java reads in them
sql_message     tree + one message's properties → does it match?
sql_columns     tree + columns of properties → which rows match?
message_filter  both kinds together: `MessageFilter`
"""
