"""`pyrocket checkpoint`: shows and moves a query's progress in its checkpoint.

files      reads the files of a checkpoint
show       prints them as text or JSON
reset      moves a query
commands   the command line; finds running queries
"""
