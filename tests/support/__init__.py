"""What tests share: stores made in many ways, faults, clocks and Spark."""
