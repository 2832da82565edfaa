"""The types with which applications stage and publish batches."""

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Any

from pyrocket.base.arguments import is_whole
from pyrocket.disk.machine import BootTime, boot_time
from pyrocket.errors import OptionError, SinkError
from pyrocket.values.sink import FAIL, ON_DIFFERENCE, ON_GAP

_MAX_BATCH = 2**63 - 1

ONCE = "pyrocket-once:"
"""Begins the identity of a batch that is repeated only if a reply is lost."""


@dataclass(frozen=True, kw_only=True)
class SinkBatch:
    """The identity of a batch. Raises SinkError (SINK_NO_IDENTITY).

    identity: the id of a query or of an application; not empty.
    target: the topic option, or "" if a column has the topics. Distinguishes two sinks of a
        query.
    batch: the number of the micro-batch, or the application's version; not negative.
    run: the id of the query's run; only the latest run may publish. "" for applications.
    began: start time of the batch, which identifies the latest run; ignored in comparisons.
    """

    identity: str
    target: str
    batch: int
    run: str = ""
    began: BootTime = field(default_factory=boot_time, compare=False)

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
                f"{self.batch} is not a batch number.",
                remedy="Use a whole number of 0 or more that increases with each batch.",
                code="SINK_NO_IDENTITY",
            )

    @classmethod
    def once(cls, target: str = "", name: str = "") -> "SinkBatch":
        """Return a batch that is repeated only if a broker's reply is lost; soon forgotten."""
        return cls(identity=f"{ONCE}{name or uuid.uuid4()}", target=target, batch=0)

    @property
    def key(self) -> str:
        """The query and its target as 32 hex digits: a folder name, and a message key."""
        return query_key(self.identity, self.target)


def query_key(identity: str, target: str = "") -> str:
    """Return 32 hex digits for a query and a target, or for the query alone."""
    named = f"{len(identity)}:{identity}{target}"
    return hashlib.sha256(named.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class PublishPolicy:
    """The handling of a batch that is not the next one. Raises OptionError.

    on_difference: for a replay whose rows differ from the published rows. FAIL raises an error;
        DROP keeps the published rows and logs an error; PUBLISH also publishes the new rows, so
        that some rows are published twice.
    on_gap: for a batch after batches that are missing in this store. FAIL raises an error; ACCEPT
        logs it.
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
            remedy="Use a str that UTF-8 can encode.",
            code="SINK_NO_IDENTITY",
        ) from error
