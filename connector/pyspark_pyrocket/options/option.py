"""One option, as the code and the tables of the READMEs know it."""

from dataclasses import dataclass

BATCH, STREAM, SINK = "batch", "stream", "sink"
READ = "read"
"""A read that has not yet said whether it will stream: the options of both are fine."""

READS = (BATCH, STREAM)
ALL = (BATCH, STREAM, SINK)


@dataclass(frozen=True)
class Option:
    """One option; `default` and `meaning` are as the README prints them.

    instead: what somebody does who wanted it in a query that does not have it.
    """

    name: str
    default: str
    queries: tuple[str, ...]
    meaning: str
    instead: str = ""

    def serves(self, query: str) -> bool:
        """Tell whether a query of this kind has the option."""
        return query in self.queries or (query == READ and self.queries != (SINK,))
