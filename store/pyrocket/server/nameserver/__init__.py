"""The name server, and the registration of brokers.

route_table   the registrations of brokers, and the routes of topics, in memory only
server        serves a route table at an address
process       the name server process
registration  registers a broker with name servers
"""
