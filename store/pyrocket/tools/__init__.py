"""Tools built on `Store`: verify, repair, command line, notebook tables and pytest fixtures."""
