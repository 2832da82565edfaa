"""The CommitLog: the only truth. Everything in `index/` can be rebuilt from it.

commit_log   reading, and placing records in files
walk         record after record, for recovery and roll-forward
cut_file     whether a file has lost its end
flusher      making it durable
recovery     finding the last whole record after a crash
"""
