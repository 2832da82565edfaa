"""`pyrocket checkpoint`: what Spark knows of a query's progress, shown and moved.

files      the files of a checkpoint, read
show       printed, for people and for machines
reset      a query is moved, or begun where a group stands
running    whether it may be running
commands   the command line
"""
