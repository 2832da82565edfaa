"""The core of producers and consumers: decides everything, and has no threads, sockets or clock.

The core consists of coroutines of one event loop. They wait for replies of a `ClientTransport`, for
listeners, and for times on the loop's clock. A client runs them in the event loop of a thread;
tests run them in a simulated loop that orders, delays and loses replies.

tasks          tasks that are repeated, also side by side at several brokers
routes         the queues of each topic, and when they are asked for again
process_queue  a queue that a consumer holds: its messages, position and attempts
offsets        where a group starts, and the offsets that it has reached, until they are stored
pulling        pulls the messages of a queue
listening      what a consumer does with messages: the interface, and the listener's results
concurrent     consumes the messages of a queue in any order
orderly        consumes the messages of a queue in order
membership     the heartbeats of a consumer at all brokers of its topics
group_member   the queues that a member of a group holds, and their locks
consumer       a push consumer: start, periodic tasks, stop
polling        a pull consumer
queue_choice   the queue that a producer sends a message to
sending        the attempts of a producer to send messages
transactions   the decisions of a transactional producer, and its answers to checks

Tasks that live as long as their client. An error is counted in the last column, logged, and the
task goes on; only the listed event ends it.

| task                          | ends with                         | counted in             |
|-------------------------------|-----------------------------------|------------------------|
| heartbeats and rebalances     | stop                              | `task_errors`          |
| renewals of locks             | stop                              | `task_errors`          |
| stored offsets                | stop                              | `task_errors`          |
| confirmed queues              | stop                              | `task_errors`          |
| routes                        | stop                              | `task_errors`          |
| pulls of one queue            | its loss, stop                    | `task_errors`          |
| concurrent listeners          | stop, ListenerExitError           | `listener_errors`      |
| the listener of one queue     | its loss, stop, ListenerExitError | `listener_errors`      |
| late messages                 | stop                              | `task_errors`          |
| heartbeats of a pull consumer | close                             | `PollingCore.failures` |
| checks of transactions        | close                             | the log                |
| notifications of one broker   | close, its end in the routes      | the log                |
| message traces                | close                             | `Tracer.dropped`       |

The thread of the event loop (`instance`) ends with its last client. If code of the application ends
it earlier, as SystemExit in a callback does, `state` of its clients is FAILED.
"""
