"""Brokers and name servers over gRPC.

server         serves a broker at an address
service        the calls of `pyrocket.v1.Broker`: messages, streaming, implementation
clients        the calls of `pyrocket.client`'s producers and consumers
messaging      RocketMQ's own protocol, for its clients
nameserver     the name server, and the registration of brokers
replica        a replica of a broker: follows its primary, and serves reads
health         grpc.health.v1
monitoring     /metrics and /health
process        the broker process, from start to shutdown
call_server    threads, rights, limits and errors of calls, for every server; its event loop
incoming       a call and who makes it, and what it holds within the limits
requests       parses requests
gate           checks the rights that each call needs
version_feed   sends versions of the store to all watching clients
tls            the broker's certificate
"""

import pyrocket.wire  # noqa: F401 - reports packages that are missing
