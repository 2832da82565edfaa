"""The routes of topics that a name server keeps in memory. Uses no network and no disk.

addresses     the addresses of brokers, as host and port
route_table   the registrations of brokers, and the routes of topics
"""
