"""Files of a store: their names, fixed-size segments, locks, and the state that processes share.

Nothing here knows a format. Every write to a store goes through `io`, every path comes from
`layout`, and no symbolic link is followed (`tree`).
"""
