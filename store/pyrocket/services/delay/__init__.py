"""Messages with due times of their own: delivered on time, cancelled, kept while files go.

RocketMQ 5's `TimerMessageStore` keeps a wheel of seconds and a log of what hangs on it. Here the
truth is the queue of the timer topic and three shared words: an entry below `timed` that is not
behind (`timer_due`, `timer_offset`), by due time and then by queue offset, is delivered, or dropped
because it was cancelled. What is pending lies in files by hours of due times, an index that can be
built again (`index.timer_buckets`).
"""
