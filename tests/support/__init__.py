"""Helpers that tests share: stores of many kinds, faults, clocks and Spark."""
