"""Repair of a store: fixes what `verify` finds and can be fixed, and leaves the rest as it is.

The repair holds the store exclusively: no other process has it open for writing, and readers wait.
Nothing is lost: what is cut off the log is kept in `pyrocket/cut-<time>-<offset>`; foreign and
broken files are moved to `pyrocket/quarantine/<time>/`. A log that is damaged in the middle is
truncated there only on request, because whole messages follow. A repair that was killed can be
started again.

plan          findings → actions
placeholders  records written over damaged ranges of the log
steps         taking the actions
run           plan, take the store exclusively, act, check again
"""
