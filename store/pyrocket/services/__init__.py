"""What RocketMQ offers beyond send and pull: delayed delivery, transactions, exactly-once batches.

Each package is one complete feature; the packages never import each other.
"""
