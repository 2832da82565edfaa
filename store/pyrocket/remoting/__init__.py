"""The client of real RocketMQ clusters, which speak RocketMQ's remoting protocol.

frames        requests and answers as bytes
frame_reader  the bytes of a connection as frames
calls         requests with their answers; the codes of both, and the errors that answers become
requests      the calls to brokers
connection    the connections to one server: TLS, signatures, servers of other protocols
name_servers  the calls to name servers
cluster       finds the brokers of a cluster, remembers routes, and repeats calls
pulls         reads a range of a queue by many pulls at once
records       the records of pulls, checked
reads         reads planned ranges as slices, at masters or slaves
offsets       the topics, the offsets and the consumer groups of one broker
samples       the last messages of queues: marks, sizes, times
lookups       finds messages by key or id
source        reads the topics at one broker
batches       Arrow columns as requests that store them; the ids of messages
sink          sends rows to topics
"""
