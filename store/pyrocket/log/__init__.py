"""The CommitLog, the only truth: everything in `index` can be rebuilt from it."""
