"""Batches that become visible whole, once: staged by tasks, published by one process."""
