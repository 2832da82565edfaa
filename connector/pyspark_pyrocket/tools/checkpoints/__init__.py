"""`pyrocket checkpoint`: shows and moves a query's progress in its checkpoint.

files      reads the files of a checkpoint
show       prints them, for people and for machines
reset      moves a query, or makes a checkpoint that begins where a group stands
running    whether a query may be running
commands   the command line
"""
