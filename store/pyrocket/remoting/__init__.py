"""The client of real RocketMQ clusters, which speak RocketMQ's remoting protocol.

frames      requests and answers as bytes
codes       the codes of requests and answers; the errors that answers become
security    TLS, and the signature of ACL
connection  the connections to one server
calls       the calls that read, and commits: what is sent, and how the answer is read
writes      the calls that store messages, topics and groups
routes      name servers: the routes of topics
"""
