"""The core of producers and consumers: decides everything, and has no threads, sockets or clock.

The core consists of coroutines of one event loop. They wait for replies of a `ClientTransport`, for
listeners, and for times on the loop's clock. A client runs them in the event loop of a thread;
tests run them in a simulated loop that orders, delays and loses replies.

routes         the queues of each topic, and when they are asked for again
"""
