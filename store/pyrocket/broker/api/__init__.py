"""The operations of a broker, without a protocol.

clients  the calls of `pyrocket.client`'s producers and consumers
work     the kinds of work of calls
"""
