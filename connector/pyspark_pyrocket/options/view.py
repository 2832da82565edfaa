"""What of a store is read: the messages of topics, or something that no topic shows."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyrocket.errors import OptionError

from pyspark_pyrocket.options import payload, span
from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import BATCH, READS, Option

MESSAGES, SCHEDULED, HALF = "messages", "scheduled", "half"
COMMITLOG, RETRY, DLQ, GROUPS, TOPICS = "commitlog", "retry", "dlq", "groups", "topics"

VIEWS = (MESSAGES, SCHEDULED, HALF, COMMITLOG, RETRY, DLQ, GROUPS, TOPICS)
TABLES = (GROUPS, TOPICS)
WAITING = (SCHEDULED, HALF)

ROWS = (
    Option(
        "view",
        "`messages`",
        (BATCH,),
        "What is there besides the messages of topics, as of the moment of planning, without a "
        "write. `scheduled`: what waits to be delivered, with `dueTimestamp`; `half`: undecided "
        "messages of transactions; both of all topics unless some are named. `commitlog`: every "
        "record of the log, in its order, those too that no queue refers to. `retry` and `dlq`: "
        "what consumers have sent back or given up. `groups`: how far each group is, queue by "
        "queue; `topics`: all topics. The option `group` leaves one group of `retry`, `dlq` and "
        "`groups`.",
    ),
    Option(
        "onDamage",
        "`fail`",
        (BATCH,),
        "With `view=commitlog`, where the log is damaged: `fail` names the place, `skip` leaves it "
        "out and logs it.",
    ),
    Option("verifyCrc", "`false`", READS, "Check the checksum of every body that is read."),
)

_NAMES = ("subscribe", "topic", "subscribePattern", "assign")


@dataclass(frozen=True)
class View:
    """What is read, and whether damaged places of the log are left out."""

    name: str = MESSAGES
    skips_damage: bool = False

    @classmethod
    def parse(cls, given: OptionReader) -> "View":
        """Read which view is asked for; refuse what does not go with it."""
        name = given.one_of("view", VIEWS)
        if name != MESSAGES:
            _refuse_all(given, name, span.ROWS, "shows all there is now")
        if name not in (MESSAGES, *WAITING):
            names = _NAMES[2:] if name == COMMITLOG else _NAMES
            for option_name in names:
                _refuse(given, name, option_name, "is not about such topics")
        if name in TABLES:
            _refuse_all(given, name, payload.ROWS, "has no messages")
        if name != COMMITLOG:
            _refuse(given, name, "onDamage", "does not read the log as it is")
        if name not in (MESSAGES, RETRY, DLQ, GROUPS):
            _refuse(given, name, "group", "is not about groups")
        return cls(name, given.one_of("onDamage", ("fail", "skip")) == "skip")


def _refuse_all(given: OptionReader, view: str, options: Iterable[Option], why: str) -> None:
    for option in options:
        _refuse(given, view, option.name, why)


def _refuse(given: OptionReader, view: str, option: str, why: str) -> None:
    if option in given:
        raise OptionError(
            f"Option {option!r} is given with view={view}, which {why}.",
            remedy=f"Remove {option!r}, and filter the DataFrame.",
            code="OPTION_CONFLICT",
        )
