"""What services ask a writer to do for them, at which moment.

A writer knows of no service; whoever builds a store from its parts registers them here before the
writer comes in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

EVERYTHING_MAY_GO = 2**63 - 1
"""As the answer of `holds`: no record is held."""


@dataclass
class Hooks:
    """Lists of calls, made in the order in which they were registered.

    after_section: outside any turn, when this process has had one; must not wait, never raises.
    holds: in a turn; the lowest log offset that has to stay when old files are removed.
    before_removal: in a turn, before files go; told where the log will begin. What is still needed
        of what lies before is appended again here, or the removal stopped by an error.
    before_rest: in a turn, alone in the directory, before the store ends cleanly.
    leftovers: in a turn or outside, now and then, whatever the retention: what nobody will use any
        more is removed here; told whether the disk is too full for appends.
    """

    after_section: list[Callable[[], None]] = field(default_factory=list)
    holds: list[Callable[[], int]] = field(default_factory=list)
    before_removal: list[Callable[[int], None]] = field(default_factory=list)
    before_rest: list[Callable[[], None]] = field(default_factory=list)
    leftovers: list[Callable[[bool], None]] = field(default_factory=list)

    def held_from(self) -> int:
        """Return the lowest log offset that has to stay."""
        return min((hold() for hold in self.holds), default=EVERYTHING_MAY_GO)
