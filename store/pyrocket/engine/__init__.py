"""The readers and writers of a store: sending, recovery, checkpoints, cleaning.

`reader` never locks and never writes. `writer` takes the write lock for each append; features such
as delayed delivery take part through `hooks`. `parts` has what a `Store` hands out.
"""
