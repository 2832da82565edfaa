"""ConsumeQueues: queue offset to location in the log. Written by the dispatcher, read by scans."""
