"""The CommitLog, the only source of truth: everything in `index` can be rebuilt from it."""
