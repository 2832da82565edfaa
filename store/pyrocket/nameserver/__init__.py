"""The routes of a name server: which brokers have which topics. Knows no wire, disk or thread.

addresses     the addresses of brokers, as host and port
route_table   the registrations of brokers, and the routes of topics
"""
