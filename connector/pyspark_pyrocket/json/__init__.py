"""Bodies as columns, and columns as bodies. Pure, Arrow in and out.

json_types      what Arrow's JSON reader can read a Spark type as, and the rest of the way
json_text       JSON's tokens as the values of a Spark type, one by one
nesting         how deep a body is nested, and the stack that it needs
json_rows       one body → one row, by the rules of Spark's `from_json`
in_parts        columns at once, and row by row only around what is wrong
decoding        bodies → typed columns, and what becomes of the bad ones
inference       bodies → the schema that they seem to have
json_encoding   columns → JSON bodies, by Arrow's kernels
"""
