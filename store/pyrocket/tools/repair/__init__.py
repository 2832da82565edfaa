"""Repair of a store: fixes the repairable findings of `verify` and leaves the rest unchanged.

The repair holds the store's locks exclusively: no other process has the store open for writing, and
readers wait. Nothing is lost: bytes truncated from the log are saved in
`pyrocket/cut-<time>-<offset>`; foreign and corrupt files are moved to
`pyrocket/quarantine/<time>/`. A log that is damaged in the middle is only truncated on request,
because complete messages follow the damage. A killed repair can be started again.

plan          findings → actions
placeholders  write records over damaged ranges of the log
steps         take the actions
run           plan, lock the store, act, check again
"""
