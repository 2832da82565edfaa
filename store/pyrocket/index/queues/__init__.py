"""ConsumeQueues: queue offset → location in the log. Written by the dispatcher, read by scans."""
