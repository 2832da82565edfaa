"""The name server as a process, and its clients.

calls         the service, and the errors of its clients
server        implements the calls
process       the process, from start to shutdown
registration  registers a broker with name servers
lookup        finds the brokers of topics, for clients
"""
