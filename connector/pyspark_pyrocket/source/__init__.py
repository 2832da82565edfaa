"""What is read, from where to where, and in which tasks: settled on the driver.

checkpoint            what Spark remembers of a stream
ranges, sizes         runs of queues, and how many bytes they are
cutting, rate_limit   how much is in a task, and in a micro-batch
losses                messages that are gone: what is done about them, and their count
planner, places       the queues, and where a read begins and ends in them
resuming              where a stream goes on
stream_planner        how far it goes
intake                all limits of a micro-batch together
"""
