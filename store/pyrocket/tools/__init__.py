"""For operators: verify, repair, the commands, notebook tables and fixtures, built on `Store`."""
