"""Delayed delivery: messages with a delay level, and messages with a due time (timers).

Both are delivered in the same way. When a delayed message is sent, `engine.delayed_routing` appends
it to a system topic; its properties name its real topic and queue. It is *pending* until it is
*due*. Then a service *delivers* the message: the service appends a copy to the real topic and queue
and advances a cursor in the same append. A crash at any point therefore neither loses a message nor
delivers it twice. `engine.service_runner` runs the two services:

- `schedule_service` delivers the delay levels (RocketMQ's ScheduleMessageService). A queue of
  SCHEDULE_TOPIC_XXXX holds the messages of one level. They become due in the order of the queue,
  so the only state is a queue offset per level.
- `timer_service` delivers timers (RocketMQ 5's TimerMessageStore). Queue 0 of rmq_sys_wheel_timer
  holds them in send order. `timer_index` indexes the timers by due time: a file of entries for each
  hour, and a tally with the checksums of these files. The cursors hold the queue offset up to which
  timers are indexed and the due time up to which they are delivered.

A timer, file by file:

1. `timer_service` reads new messages of the queue (`timer_queue`) into the index.
2. `pending_timers` keeps the next minute of the index in memory, in delivery order. Entries that
   were cancelled or replaced by a copy are not delivered.
3. `copies` builds the copies of due timers, as for the schedule service. The timer service appends
   them.
4. Before the cleaner deletes log files, `timers` re-appends their pending timers. Messages of
   delay levels are not re-appended: a log file is not deleted while it contains a pending message
   of a level.
5. After a crash, `timer_recovery` compares the index with the delivered copies in the log, or
   rebuilds it from the queue; `skip_delivered` does the same for the cursors of the levels.
6. At a clean shutdown, `java_handover` writes what a RocketMQ 5 broker needs to continue.

`timers` is the public interface, `Store.timers`: it lists and cancels timers.
"""
