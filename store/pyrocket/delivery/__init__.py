"""Delayed messages of RocketMQ's delay levels: finding what is due, and delivering it."""
