"""The name server as a process, and its clients.

server    the calls of name servers
process   the process, from start to shutdown
"""
