"""The client of real RocketMQ clusters, which speak RocketMQ's remoting protocol.

frames        requests and answers as bytes
frame_reader  the bytes of a connection as frames
codes         the codes of requests and answers; the errors that answers become
security      TLS, and the signature of ACL
peers         addresses, and servers of other protocols
connection    the connections to one server
calls         the form of a call
offsets       the calls about offsets of queues and groups
messages      the calls that read and store messages, and create topics and groups
routes        what name servers answer: the brokers, and the queues of topics
name_servers  asks name servers, and remembers routes
pulls         reads a range of a queue by many pulls at once
records       the answers of pulls as slices of records
reads         reads planned ranges, at masters or slaves
joined        small ranges of several queues as one slice
samples       the last messages of queues: marks, sizes, times
bounds        the ranges of the queues of topics
lookups       finds messages by key or id
groups        commits the offsets of consumer groups
cluster       finds the brokers of a cluster, and repeats calls
source        reads the topics at one broker
batches       Arrow columns as requests that store them; the ids of messages
sink          sends rows to topics
"""
