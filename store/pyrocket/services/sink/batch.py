"""What a sink publishes, told apart from everything else: the words of staging and publication."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrocket.arguments import is_whole
from pyrocket.disk.machine import Timestamp, moment
from pyrocket.errors import OptionError, SinkError
from pyrocket.formats.content_sum import ContentSum

_MAX_BATCH = 2**63 - 1

FAIL, DROP, PUBLISH, ACCEPT = "fail", "drop", "publish", "accept"
ON_DIFFERENCE = (FAIL, DROP, PUBLISH)
ON_GAP = (FAIL, ACCEPT)


@dataclass(frozen=True, kw_only=True)
class SinkBatch:
    """The identity of what is published at once. Raises SinkError (SINK_NO_IDENTITY).

    identity: the id of a query, or of an application; never empty.
    target: the topic option, or "" when a column says it: two sinks of one query stay apart.
    batch: the number of the micro-batch, or the application's version; never negative.
    run: the id of the query's run, of which the latest wins; "" for applications.
    began: when work on it began, by which the latest run is known; part of no comparison.
    """

    identity: str
    target: str
    batch: int
    run: str = ""
    began: Timestamp = field(default_factory=moment, compare=False)

    def __post_init__(self) -> None:
        for name in ("identity", "target", "run"):
            _check_name(name, getattr(self, name))
        if not self.identity:
            raise SinkError(
                "a batch without a stable identity cannot be published exactly once.",
                remedy="Give the options txnAppId and txnVersion.",
                code="SINK_NO_IDENTITY",
            )
        if not is_whole(self.batch, 0, _MAX_BATCH):
            raise SinkError(
                f"{self.batch} is no number of a batch.",
                remedy="Use a whole number from 0 on that grows with each batch.",
                code="SINK_NO_IDENTITY",
            )

    @property
    def key(self) -> str:
        """The query and its target as 32 hex digits: a folder's name, and a key in the log."""
        return query_key(self.identity, self.target)


def query_key(identity: str, target: str = "") -> str:
    """Return 32 hex digits that stand for a query and a target, or for the query alone."""
    named = f"{len(identity)}:{identity}{target}"
    return hashlib.sha256(named.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class PublishPolicy:
    """What becomes of a batch that cannot be the next one. Raises OptionError.

    on_difference: for a replay whose rows differ from what was published: FAIL; DROP keeps what
        was published, and logs an error; PUBLISH publishes the new rows, too, some of them twice.
    on_gap: where batches before it are missing in this store: FAIL; ACCEPT logs an error.
    """

    on_difference: str = FAIL
    on_gap: str = FAIL

    def __post_init__(self) -> None:
        for name, allowed in (("on_difference", ON_DIFFERENCE), ("on_gap", ON_GAP)):
            given = getattr(self, name)
            if given not in allowed:
                raise OptionError(
                    f"{name} is {given!r}.", remedy=f"Use one of {', '.join(allowed)}."
                )


def _check_name(name: str, value: Any) -> None:
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise SinkError(
            f"the {name} of a batch is {value!r}.",
            remedy="Use a text (str) that UTF-8 can encode.",
            code="SINK_NO_IDENTITY",
        ) from error


@dataclass(frozen=True)
class Staged:
    """What one task has staged; small, so that it can travel to whoever publishes.

    name: of the file, below the folder of staged files; "" where there were no rows.
    rows, bytes: messages, and bytes of log without what joins files.
    file_bytes, checksum: of the file.
    content: what the rows say; a replay that makes the same rows makes the same sum.
    store: the store's uuid.
    topics: write queues of each topic, as the rows were routed.
    left_out: rows that the task did not write.
    """

    name: str
    rows: int
    bytes: int
    file_bytes: int
    checksum: int
    content: ContentSum
    store: str
    topics: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True)
class Published:
    """What became of a batch; with `dropped`, it had been published before.

    rows, bytes: messages of this call that were appended, and bytes of log that they took.
    log_end: where the log ended then.
    left_out: rows of this call that the tasks did not write, such as rows without a body.
    """

    rows: int
    bytes: int
    dropped: bool
    log_end: int
    left_out: int = 0
