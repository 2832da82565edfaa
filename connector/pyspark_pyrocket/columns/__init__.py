"""What a DataFrame gets: its columns, and its schema as a projection of the store's scan. Pure.

columns         the columns that messages have
view_columns    those of the other views
value_checks    what the fields of bodies may be
value_columns   those fields as columns
projection      a schema as what has to be read, and what is made of it
"""
