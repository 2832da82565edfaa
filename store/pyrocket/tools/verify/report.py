"""What a check found, of all that it has looked at."""

from dataclasses import dataclass
from pathlib import Path

from pyrocket.log.salvage import DamagedRange
from pyrocket.metadata.topics import TopicConfig
from pyrocket.tools.verify.finding import Finding, Severity

SIZES = "STORE_SIZES"
"""That `store.json` contradicts all files."""


@dataclass(frozen=True)
class Report:
    """What a check found. `counts` counts findings by code; of each a hundred are kept at most.

    `queues_in_log` are those of which the log has messages; `missing_topics` what the topic table
    lacks.
    """

    path: Path
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    messages: int
    entries: int
    queues: int
    log_start: int
    log_end: int
    last_stored_ms: int
    bad_places: tuple[DamagedRange, ...]
    queues_in_log: frozenset[tuple[str, int]]
    missing_topics: tuple[TopicConfig, ...]

    @property
    def ok(self) -> bool:
        """Whether there is nothing but notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def first_hole(self) -> DamagedRange | None:
        """The first damaged place of the log that messages follow."""
        holes = [place for place in self.bad_places if place.start < self.log_end]
        return min(holes, key=lambda place: place.start, default=None)

    @property
    def lacks_files(self) -> bool:
        """Whether files of the log are missing or cut short, so that nothing can be mended."""
        cut = (one.code == "LOG_FILE_LENGTH" and not one.mendable for one in self.findings)
        return "LOG_FILE_MISSING" in self.counts or any(cut)

    @property
    def is_unidentified(self) -> bool:
        """Whether `store.json` cannot be believed.

        It says what size files have and how long delayed messages wait.
        """
        broken = ("CONFIG_BROKEN", "pyrocket/store.json")
        return SIZES in self.counts or broken in {(each.code, each.file) for each in self.findings}

    @property
    def waits_for(self) -> str:
        """What has to be done before the log can be gone through and the store be opened."""
        if self.lacks_files:
            return "Restore what is missing of the log"
        if self.is_unidentified:
            return "Mend pyrocket/store.json"
        return "See to the broken tables" if "CONFIG_BROKEN" in self.counts else ""
