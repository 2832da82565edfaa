"""When and how rows appear, and what makes a write the same one again."""

from dataclasses import dataclass

from pyrocket import StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import SINK, Option, OptionReader

FAIL, DROP, PUBLISH, ACCEPT = "fail", "drop", "publish", "accept"
FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC = "task", "sync", "async"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"

ROWS = (
    Option(
        "delivery",
        "`exactly-once`",
        (SINK,),
        "`exactly-once`: all rows of a write or micro-batch appear together, durably, and once. "
        "`at-least-once`: tasks append on their own, and what is tried again stands there twice.",
    ),
    Option(
        "txnAppId",
        "none",
        (SINK,),
        "Batch writes, with `txnVersion`: names who writes, so that a repetition is dropped. "
        "In `foreachBatch`; a stream needs none.",
    ),
    Option(
        "txnVersion",
        "none",
        (SINK,),
        "With `txnAppId`: the number of the write, such as the id of the micro-batch. It has to "
        "grow; the same one again is dropped, a smaller one refused.",
    ),
    Option(
        "onReplayDifference",
        "`fail`",
        (SINK,),
        "What to do when a batch that was published before comes again with other rows. `fail`: "
        "`SINK_BATCH_DIFFERS`. `drop`: keep what was published, and log an error. `publish`: "
        "publish these rows as well, so that some are there twice.",
    ),
    Option(
        "onBatchGap",
        "`fail`",
        (SINK,),
        "What to do when a stream's earlier micro-batches are missing in the store. `fail`: "
        "`SINK_BATCH_GAP`, or `SINK_STORE_CHANGED` if all are. `accept`: go on without them, and "
        "log an error.",
    ),
    Option(
        "flush",
        "`task`",
        (SINK,),
        "With `delivery=at-least-once`: when rows are made durable: once at the end of each task, "
        "after every Arrow batch (`sync`), or soon after, in the background (`async`).",
    ),
    Option(
        "timerMaxDelay",
        "`40d`",
        (SINK,),
        "How far ahead `delay` and `deliverTimestamp` may lie; what is further fails the write.",
    ),
)


def on_replay_difference(given: OptionReader, delivery: str) -> str:
    """Return FAIL, DROP or PUBLISH."""
    if "onReplayDifference" in given and delivery != EXACTLY_ONCE:
        raise OptionError(
            f"Option 'onReplayDifference' is given with delivery={delivery}, which compares no "
            "repetition.",
            remedy="Remove one of them.",
            code="OPTION_CONFLICT",
        )
    return given.one_of("onReplayDifference", (FAIL, DROP, PUBLISH))


def on_batch_gap(given: OptionReader) -> str:
    """Return FAIL or ACCEPT."""
    return given.one_of("onBatchGap", (FAIL, ACCEPT))


def timer_max_delay_ms(given: OptionReader) -> int:
    """Return how far ahead due times may lie."""
    length = given.duration_ms("timerMaxDelay")
    return StoreConfig().timer_max_delay_ms if length is None else length


@dataclass(frozen=True)
class Transaction:
    """Who writes, by the user's word, and the number of the write: repetitions are dropped."""

    app_id: str
    version: int


def transaction_of(given: OptionReader, delivery: str, *, streaming: bool) -> Transaction | None:
    """Return what makes a write the same one again, or None where the user gave nothing."""
    named = [option for option in ("txnAppId", "txnVersion") if option in given]
    if not named:
        return None
    if streaming:
        raise OptionError(
            f"Option {named[0]!r} is for batch writes.",
            remedy="Remove it: a stream is known by its checkpoint. In foreachBatch it belongs to "
            "the write of the DataFrame.",
            code="OPTION_CONFLICT",
        )
    if len(named) == 1:
        raise OptionError(
            f"Option {named[0]!r} is given alone.",
            remedy="A repetition is known by both: give 'txnAppId' and 'txnVersion', or neither.",
            code="OPTION_MISSING",
        )
    if delivery != EXACTLY_ONCE:
        raise OptionError(
            f"Option 'txnAppId' is given with delivery={delivery}, which drops no repetition.",
            remedy="Remove 'delivery', or 'txnAppId' and 'txnVersion'.",
            code="OPTION_CONFLICT",
        )
    app_id = given.text("txnAppId")
    if not app_id:
        raise OptionError(
            "Option 'txnAppId' is empty.", remedy="Name what writes; keep the name for good."
        )
    version = given.whole("txnVersion", least=0)
    assert version is not None
    return Transaction(app_id, version)
