"""The columns that a DataFrame may have, and its schema as a projection of a scan. Pure.

messages     the columns of messages
kafka        those that look like Kafka's source
values       columns that are made of bodies
views        the columns of the other views
projection   a DataFrame's schema → the columns to scan, and how its columns are made from them
"""
