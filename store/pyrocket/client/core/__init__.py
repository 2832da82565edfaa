"""The core of producers and consumers: decides everything, and has no threads, sockets or clock.

The core consists of coroutines of one event loop. They wait for replies of a `ClientTransport`, for
listeners, and for times on the loop's clock. A client runs them in the event loop of a thread;
tests run them in a simulated loop that orders, delays and loses replies.

routes         the queues of each topic, and when they are asked for again
process_queue  the messages of a queue that were pulled and are not consumed yet
offsets        the offsets that a consumer has reached, until they are stored
pulling        pulls the messages of a queue
listening      what a consumer does with messages: the interface, and the listener's results
concurrent     consumes the messages of a queue in any order
orderly        consumes the messages of a queue in order
group_member   the queues that a member of a group holds, its heartbeats and locks
consumer       a push consumer: start, periodic tasks, stop
polling        a pull consumer
queue_choice   the queue that a producer sends a message to
sending        the attempts of a producer to send messages
transactions   the decisions of a transactional producer, and its answers to checks
"""
