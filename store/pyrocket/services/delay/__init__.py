"""Delayed delivery: messages by delay level, and messages with due times of their own (timers).

Both work alike. When a delayed message is sent, `engine.delayed_routing` appends it to a system
topic; its properties keep the topic and queue that it is meant for. It is *pending* until it is
*due*. Then a service *delivers* it: it appends a copy to the real topic and queue, and moves a
cursor in the same append, so that a crash at any point loses nothing and delivers nothing twice.
The two services are run by `engine.service_runner`:

- `schedule_service` delivers the delay levels (RocketMQ's ScheduleMessageService). A queue of
  SCHEDULE_TOPIC_XXXX holds the messages of one level. They become due in the order of the queue,
  so a queue offset per level is all the state there is.
- `timer_service` delivers timers (RocketMQ 5's TimerMessageStore). Queue 0 of rmq_sys_wheel_timer
  holds them in the order of sending, so an index by due time is needed: `timer_index` has a file
  of entries for each hour, and a tally of checksums of these files. The cursors say how far
  the queue is in the index, and which due time is delivered.

A timer, file by file:

1. `timer_service` reads new messages of the queue (`timer_queue`) into the index.
2. `pending_timers` has the next minute of the index in memory, in the order of delivery. Entries
   that were cancelled or replaced by a copy are not delivered.
3. `timer_copies` builds the copies of those that are due, with `due_copies`, which the schedule
   service uses, too. The service appends them.
4. Before the cleaner deletes log files, `timers` appends their pending timers again. Levels do not
   need that: their messages hold the log files until they are delivered.
5. After a crash, `timer_recovery` compares the index with the delivered copies in the log, or
   rebuilds it from the queue; `skip_delivered` does the same for the cursors of the levels.
6. At a clean shutdown, `java_handover` writes what a RocketMQ 5 broker needs to continue.

`timers` is the public face, `Store.timers`: it lists and cancels timers.
"""
