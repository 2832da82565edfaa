"""What a query creates where it is missing, and with which settings."""

import shlex
from dataclasses import dataclass

from pyrocket import Retention, StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import SINK, STREAM, Option, OptionReader

CREATION_ROWS = (
    Option(
        "createIfMissing",
        "`true` (sink), `false` (stream)",
        (STREAM, SINK),
        "Create the store and the topics that do not exist yet. A stream creates a store only "
        "where it begins: a query that is restarted while its disk is not mounted makes no empty "
        "one. A source with `subscribePattern` creates no topics.",
        instead="A batch reads what is there: with missingTopic=wait it is empty without its "
        "topics.",
    ),
    Option(
        "directoryMode",
        "as the umask",
        (SINK,),
        "The permissions of a store that this write creates, such as `2770`: with the leading `2` "
        "the directory's group may do with all that is made in it what it may do with the "
        "directory, under whatever umask.",
    ),
)


def creates(given: OptionReader) -> bool:
    """Tell whether the store and its topics are made when they are missing."""
    return given.boolean("createIfMissing", default=given.query == SINK)


def source_creates(given: OptionReader) -> bool:
    """Tell the same for a read, which may have to leave the store alone."""
    wanted = creates(given)
    if wanted and given.boolean("readOnly", default=False):
        raise OptionError(
            "Both createIfMissing=true and readOnly=true are given, and it writes to the store.",
            remedy="Keep one of them.",
            code="OPTION_CONFLICT",
        )
    return wanted


def directory_mode(given: OptionReader) -> int | None:
    """Return the permissions of a new store's directory, or None where the umask says them."""
    if "directoryMode" not in given:
        return None
    if not creates(given):
        raise OptionError(
            "Option 'directoryMode' is given with createIfMissing=false, which creates nothing.",
            remedy="Remove one of them.",
            code="OPTION_CONFLICT",
        )
    try:
        return StoreConfig(dir_mode=int(given.text("directoryMode"), 8)).dir_mode
    except (ValueError, OptionError) as error:
        raise given.wrong(
            "directoryMode",
            "Write octal permissions, as in 2770 or 750: the owner's have to be 7.",
        ) from error


RETENTION_ROWS = (
    Option(
        "retentionHours",
        "all is kept",
        (SINK,),
        "For a store that this write creates: messages older than so many hours are deleted, in "
        "whole log files. Kept in the directory and obeyed by every writer; `pyrocket store set` "
        "changes it.",
    ),
    Option(
        "retentionBytes",
        "all is kept",
        (SINK,),
        "For a store that this write creates: the oldest log files are deleted while the log has "
        "more bytes, such as `100g`. As `retentionHours` otherwise.",
    ),
    Option(
        "cleanTime",
        "`4`",
        (SINK,),
        "With `retentionHours`: at which hours of the day old messages are deleted, such as `4` or "
        "`4,16`; local time, RocketMQ's deleteWhen. On a disk that fills up: at any time.",
    ),
)

_ARGUMENTS = {
    "retentionHours": "--retention-hours",
    "retentionBytes": "--retention-bytes",
    "cleanTime": "--clean-time",
}


@dataclass(frozen=True)
class RetentionOptions:
    """What the options say; `given` has the texts of those that are there."""

    hours: int | None
    total_bytes: int | None
    at_hours: tuple[int, ...]
    given: tuple[tuple[str, str], ...]

    def for_creation(self) -> Retention:
        """Return the retention of a new store."""
        return Retention(hours=self.hours, total_bytes=self.total_bytes, at_hours=self.at_hours)

    def check(self, path: str, kept: Retention | None) -> None:
        """Raise OptionError (RETENTION_DIFFERS) if the store goes by other values."""
        wanted = {
            "retentionHours": self.hours,
            "retentionBytes": self.total_bytes,
            "cleanTime": self.at_hours,
        }
        known = {
            "retentionHours": kept and kept.hours,
            "retentionBytes": kept and kept.total_bytes,
            "cleanTime": kept and kept.at_hours,
        }
        for name, text in self.given:
            if wanted[name] != known[name]:
                line = [f"{_ARGUMENTS[option]} {shlex.quote(said)}" for option, said in self.given]
                raise OptionError(
                    f"Option {name!r} is {text!r}, and {_told(kept)} in the store at {path}: the "
                    "option counts for a store that the write creates.",
                    remedy=f"Remove it, or run: pyrocket store set --path {shlex.quote(path)} "
                    + " ".join(line),
                    code="RETENTION_DIFFERS",
                )


def retention_of(given: OptionReader) -> RetentionOptions | None:
    """Return what the options say, None without any."""
    texts = tuple((name, given.text(name)) for name in _ARGUMENTS if name in given)
    if not texts:
        return None
    if not creates(given):
        raise OptionError(
            f"Option {texts[0][0]!r} is given with createIfMissing=false, which creates nothing.",
            remedy="Remove one of them.",
            code="OPTION_CONFLICT",
        )
    hours, total_bytes = given.whole("retentionHours"), given.size("retentionBytes")
    if hours is None and "cleanTime" in given:
        raise OptionError(
            "Option 'cleanTime' is given without 'retentionHours'.",
            remedy="It says when old messages are deleted: say with 'retentionHours' which.",
            code="OPTION_MISSING",
        )
    return RetentionOptions(hours, total_bytes, _clean_hours(given), texts)


def _clean_hours(given: OptionReader) -> tuple[int, ...]:
    if "cleanTime" not in given:
        return Retention().at_hours
    hours = [hour.strip() for hour in given.text("cleanTime").replace(";", ",").split(",")]
    if not all(hour.isascii() and hour.isdigit() and int(hour) < 24 for hour in hours):
        raise given.wrong("cleanTime", "Write hours of the day from 0 to 23, as in 4 or 4,16.")
    return tuple(sorted({int(hour) for hour in hours}))


def _told(kept: Retention | None) -> str:
    if kept is None:
        return "all messages are kept"
    hours = "any age" if kept.hours is None else f"{kept.hours:g} hours"
    size = "any number of bytes" if kept.total_bytes is None else f"{kept.total_bytes} bytes"
    times = ",".join(map(str, kept.at_hours))
    return f"messages are kept for {hours} and {size}, cleaned at {times},"
