"""`pyrocket checkpoint`: shows and moves a query's progress in its checkpoint.

files      reads the files of a checkpoint
show       prints them as text or JSON
reset      moves a query, or creates a checkpoint at the committed offsets of a group
running    finds running queries
commands   the command line
"""
