"""The readers and writers of a store: sending, lookup, recovery, checkpoints, cleaning.

`reader` never locks and never writes. `writer` takes the write lock for each append; features such
as delayed delivery take part through `hooks`.
"""
