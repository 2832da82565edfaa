"""What makes a store run: readers, writers, sending, look-up, recovery, checkpoints, cleaning.

`reader` never locks and never writes. `writer` takes the write lock for each append; features such
as delayed delivery take part through `hooks`.
"""
