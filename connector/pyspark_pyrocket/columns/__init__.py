"""The columns that a DataFrame may have, and its schema as a projection of a scan. Pure.

messages     the columns of messages
kafka        the columns of `schemaMode=kafka`
values       columns that are decoded from bodies
views        the columns of the other views
projection   a DataFrame's schema → the columns to scan, and their conversion
"""
