"""The values that rooms pass to each other.

They need no file, thread or connection, and import nothing but `errors`.
"""
