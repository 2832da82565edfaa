"""Files of a store: their names, fixed-size segments, locks, and the shared state.

This package is independent of file formats. All writes to a store use `io`, all paths come from
`layout`, and symbolic links are not followed (`tree`).
"""
