"""The values that rooms pass to each other; no module here uses a file, a thread or a connection."""
