"""What RocketMQ offers beyond send and pull: delayed delivery, transactions, exactly-once batches.

Each package is one feature as a whole; they never import each other.
"""
