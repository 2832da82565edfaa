"""Which target the options of a read or write name: the one place where another transport joins."""

from typing import Protocol

from pyspark_pyrocket.transport.path import PathTarget


class TargetOptions(Protocol):
    """What the options of reads and writes have in common."""

    @property
    def path(self) -> str:
        """The store's directory, absolute."""
        ...


def target_of(options: TargetOptions) -> PathTarget:
    """Return where the options say that messages are, as the driver opens it."""
    return PathTarget(options.path)
