"""JSON bodies as columns and back, by the rules of Spark. Pure: Arrow in and out.

decode           bodies → typed columns, and bad records
bulk             a column at once; parts with bad rows are split
rows             one body → one row, as Spark's `from_json` does
values           JSON's tokens → values of a Spark type
types            the Arrow type that is read for a Spark type, and its conversion
nesting          how deep a body is nested, and the stack for reading it
infer            bodies → their schema
encode           columns → JSON bodies, by Arrow's kernels
base64_columns   whole columns as base64
"""
