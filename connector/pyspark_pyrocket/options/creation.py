"""What a query creates if it is missing, and the settings of a new store."""

import shlex
from dataclasses import dataclass, field
from operator import attrgetter

from pyrocket import Retention, StoreConfig
from pyrocket.base.config import parse_hours
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import (
    SINK,
    SIZE,
    STORES,
    STREAM,
    WHOLE,
    Kind,
    Option,
    OptionReader,
    boolean,
    conflict,
    made_of,
    parsed_by,
)

_CREATE_IF_MISSING = Option(
    "createIfMissing",
    (STREAM, SINK),
    boolean(default=True),
    "Create the store and the topics that do not exist yet. A stream creates a store only for its "
    "first micro-batch, so that a query restarted while its disk is not mounted does not create "
    "an empty one. A source with `subscribePattern` creates no topics.",
    default="`true` (sink), `false` (stream)",
    targets=STORES,
    instead="A batch reads what exists: with missingTopic=wait, it is empty while its topics do"
    " not exist.",
)
_RETENTION_HOURS = Option(
    "retentionHours",
    (SINK,),
    WHOLE,
    "For a store that this write creates: messages older than this many hours are deleted, in "
    "whole log files. The value is stored in the directory and applied by every writer; "
    "`pyrocket store retention` changes it.",
    default="all is kept",
    targets=("path",),
)
_RETENTION_BYTES = Option(
    "retentionBytes",
    (SINK,),
    SIZE,
    "For a store that this write creates: the oldest log files are deleted while the log has more "
    "bytes, such as `100g`. Stored like `retentionHours`.",
    default="all is kept",
    targets=("path",),
)


_parse_hours = parsed_by(parse_hours, "Write hours of the day from 0 to 23, as in 4 or 4,16.")
_CLEAN_TIME = Option(
    "cleanTime",
    (SINK,),
    Kind("text", _parse_hours, Retention().at_hours),
    "With `retentionHours`: the hours of the day at which old messages are deleted, such as `4` "
    "or `4,16`; local time, RocketMQ's deleteWhen. On a nearly full disk, they are deleted at "
    "any hour.",
    default="`4`",
    targets=("path",),
)

_FIELDS = {"retentionHours": "hours", "retentionBytes": "total_bytes", "cleanTime": "at_hours"}
_ARGUMENTS = {
    "retentionHours": "--retention-hours",
    "retentionBytes": "--retention-bytes",
    "cleanTime": "--clean-time",
}


@dataclass(frozen=True)
class RetentionOptions:
    """The retention of a new store; `given` has the name and text of each option that is set."""

    retention: Retention
    given: tuple[tuple[str, str], ...]

    def check(self, path: str, kept: Retention | None) -> None:
        """Raise OptionError (RETENTION_DIFFERS) if the store has other values."""
        for name, text in self.given:
            value = attrgetter(_FIELDS[name])
            if kept is None or value(kept) != value(self.retention):
                line = [
                    f"{_ARGUMENTS[option]} {shlex.quote(value)}" for option, value in self.given
                ]
                raise OptionError(
                    f"Option {name!r} is {text!r}, but the store at {path} {_describe(kept)}: the "
                    "option only applies to a store that the write creates.",
                    remedy="Remove it, or run: pyrocket store retention --path"
                    f" {shlex.quote(path)} " + " ".join(line),
                    code="RETENTION_DIFFERS",
                )


_parse_mode = parsed_by(
    lambda text: StoreConfig(dir_mode=int(text, 8)).dir_mode,
    "Write octal permissions, as in 2770 or 750: the owner's digit has to be 7.",
)


@dataclass(frozen=True, kw_only=True)
class CreationOptions:
    """What a write creates if it is missing.

    create_if_missing: whether the store and its topics are created. directory_mode: the permissions
    of a new store; None: by the umask. retention: how long a new store keeps messages; None: for
    ever.
    """

    create_if_missing: bool = _CREATE_IF_MISSING.field()
    directory_mode: int | None = Option(
        "directoryMode",
        (SINK,),
        Kind("text", _parse_mode, None),
        "Permissions of a store that this write creates, such as `2770`. With a leading `2`, "
        "everything created in it gets the directory's group permissions, regardless of the umask.",
        default="by the umask",
        targets=("path",),
    ).field()
    retention: RetentionOptions | None = field(
        default=None, metadata=made_of(_RETENTION_HOURS, _RETENTION_BYTES, _CLEAN_TIME)
    )


def check_creates(given: OptionReader) -> None:
    """Raise OptionError (OPTION_CONFLICT) if settings are given for a store that is not created."""
    described = [option for option in ("directoryMode", *_ARGUMENTS) if option in given]
    if described and not given.read(_CREATE_IF_MISSING):
        raise conflict(
            f"Option {described[0]!r} is given with createIfMissing=false, which creates nothing.",
            "Remove one of them.",
        )


def source_creates(given: OptionReader) -> bool:
    """Return whether a read creates the store and its topics.

    Raises OptionError (OPTION_CONFLICT) if it would, but is read-only.
    """
    creates = given.read(_CREATE_IF_MISSING, boolean(default=False))
    if creates and given.text("readOnly").lower() == "true":
        raise conflict(
            "Option 'createIfMissing' writes to the store, but readOnly=true is given.",
            "Keep one of them.",
        )
    return creates


def retention_of(given: OptionReader) -> RetentionOptions | None:
    """Return the retention options; None if none is given."""
    texts = tuple((name, given.text(name)) for name in _ARGUMENTS if name in given)
    if not texts:
        return None
    hours, total_bytes = given.read(_RETENTION_HOURS), given.read(_RETENTION_BYTES)
    if hours is None and "cleanTime" in given:
        raise OptionError(
            "Option 'cleanTime' is given without 'retentionHours'.",
            remedy="It sets when old messages are deleted: set 'retentionHours' to their age.",
            code="OPTION_MISSING",
        )
    at_hours = given.read(_CLEAN_TIME)
    retention = Retention(hours=hours, total_bytes=total_bytes, at_hours=at_hours)
    return RetentionOptions(retention, texts)


def _describe(kept: Retention | None) -> str:
    if kept is None:
        return "keeps all messages"
    parts = [] if kept.hours is None else [f"retentionHours={kept.hours:g}"]
    parts += [] if kept.total_bytes is None else [f"retentionBytes={kept.total_bytes}"]
    parts.append(f"cleanTime={','.join(map(str, kept.at_hours))}")
    return f"has {', '.join(parts)}"
