"""The parts that a `Store` hands out: topics, groups, look-ups, history; and snapshots."""
