"""Mending a store: what `verify` finds and can be mended, is; the rest is left as it is.

Done with the store alone: no other process has it open, and readers wait. Nothing is lost by it:
what is cut off the log goes to `pyrocket/cut-<time>-<offset>`, what is in the way goes to
`pyrocket/quarantine/<time>/`. A log with a damaged place in its middle is cut there only if the
caller asks for it: whole messages follow. A repair that is killed can begin again.

plan           findings → what is to be done about them
stepping_over  placeholders over damaged places of the log
steps          doing it
run            planning, having the store alone, doing, and looking again
"""
