"""What every other package may use: clocks, settings, checks of arguments, threads, versions."""
