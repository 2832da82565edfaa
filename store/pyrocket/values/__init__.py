"""The values that packages pass to each other.

They need no file, thread or connection, and import nothing but `errors`.
"""
