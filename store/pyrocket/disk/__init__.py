"""Bytes as files: names, fixed-size files, locks, the shared words. No formats.

layout      every file and folder name of a store, built and parsed
tree        paths walked without following links
io          the few operations that change a disk: the seam for fault injection
fixed_names names that are checked before a writer changes anything
file_sizes  what size files have where nobody has noted it
file_run    fixed-size files behind one growing offset
whole_run   the same, as it will be without last files that are empty
durable     small files replaced whole
os_errors   errors of the operating system, translated
lock        presence and turns
state_page  words that all processes of one store share
sparse      files with holes
copying     files in a second place: links and copies
space       how full a file system is
machine     this boot, and whether a file system can carry a shared store
"""
