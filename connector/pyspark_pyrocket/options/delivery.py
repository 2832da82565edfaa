"""When and how rows become visible, and how a repeated write is recognised."""

from dataclasses import dataclass, field

from pyrocket import StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.option import (
    SERVERS,
    SINK,
    STORES,
    TEXT,
    Option,
    OptionReader,
    choice,
    conflict,
    duration,
    made_of,
    whole,
)

FAIL, DROP, PUBLISH, ACCEPT = "fail", "drop", "publish", "accept"
FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC = "task", "sync", "async"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"

_TXN_APP_ID = Option(
    "txnAppId",
    (SINK,),
    TEXT,
    "For batch writes, with `txnVersion`: the name of the writer, by which a repeated write is "
    "recognised and dropped. Intended for `foreachBatch`; a stream does not need it.",
    targets=STORES,
)
_TXN_VERSION = Option(
    "txnVersion",
    (SINK,),
    whole(least=0),
    "With `txnAppId`: the number of the write, such as the id of the micro-batch. The number has "
    "to increase: a write with the same number is dropped, one with a smaller number fails.",
    targets=STORES,
)


@dataclass(frozen=True)
class Transaction:
    """The identity of a batch write: the application, and the number of the write."""

    app_id: str
    version: int


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions:
    """When and how rows become visible.

    delivery: EXACTLY_ONCE or AT_LEAST_ONCE.
    transaction: the identity of a batch write; None if none is given.
    on_replay_difference: FAIL, DROP or PUBLISH a repetition with other rows.
    on_batch_gap: FAIL or ACCEPT if earlier micro-batches are missing in the store.
    flush: when rows are durable, FLUSH_TASK, FLUSH_SYNC or FLUSH_ASYNC; at-least-once only.
    timer_max_delay_ms: the longest delay of a message.
    broker_name: the broker to which all rows are written; empty for the default.
    """

    delivery: str = Option(
        "delivery",
        (SINK,),
        choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        "`exactly-once`: all rows of a write or micro-batch become visible together, durably, and "
        "once. `at-least-once`: tasks append directly, and repeated rows are stored again.",
    ).field()
    transaction: Transaction | None = field(
        default=None, metadata=made_of(_TXN_APP_ID, _TXN_VERSION)
    )
    on_replay_difference: str = Option(
        "onReplayDifference",
        (SINK,),
        choice(FAIL, DROP, PUBLISH),
        "What to do when a published batch is repeated with other rows. `fail`: "
        "`SINK_BATCH_DIFFERS`. `drop`: keep what was published, and log an error. `publish`: "
        "publish these rows as well, so that some are stored twice.",
        targets=STORES,
    ).field()
    on_batch_gap: str = Option(
        "onBatchGap",
        (SINK,),
        choice(FAIL, ACCEPT),
        "What to do when a stream's earlier micro-batches are missing in the store. `fail`: "
        "`SINK_BATCH_GAP`, or `SINK_STORE_CHANGED` if all are missing. `accept`: continue without "
        "them, and log an error.",
        targets=STORES,
    ).field()
    flush: str = Option(
        "flush",
        (SINK,),
        choice(FLUSH_TASK, FLUSH_SYNC, FLUSH_ASYNC),
        "With `delivery=at-least-once`, when rows become durable: at the end of each task "
        "(`task`), after every append (`sync`), or soon after, in the background (`async`).",
        targets=STORES,
    ).field()
    timer_max_delay_ms: int = Option(
        "timerMaxDelay",
        (SINK,),
        duration(StoreConfig().timer_max_delay_ms, "`40d`"),
        "The longest delay that `delay` and `deliverTimestamp` may request; a longer one fails the "
        "write.",
        targets=STORES,
    ).field()

    broker_name: str = Option(
        "brokerName",
        (SINK,),
        TEXT,
        "With an `endpoint` or `namesrv`: the name of the broker to which all rows are written. "
        "With `namesrv`, the default is all brokers of the topic. With name servers in `endpoint`, "
        "it is the broker that the stream's checkpoint names, if it is a local directory, and "
        "otherwise the broker whose name sorts first.",
        targets=SERVERS,
    ).field()

    def check(self, given: OptionReader) -> None:
        """Raise OptionError (OPTION_CONFLICT) if an option has no effect here."""
        if self.broker_name and "endpoint" not in given and "namesrv" not in given:
            raise conflict(
                "Option 'brokerName' is given without 'endpoint' and 'namesrv'.",
                "Remove it: the directory of a store belongs to one broker.",
            )
        if self.delivery == EXACTLY_ONCE and self.flush != FLUSH_TASK:
            raise conflict(
                f"Option 'flush' is {self.flush}, but an exactly-once write is always durable "
                "when it becomes visible.",
                "Remove 'flush', or set 'delivery' to at-least-once.",
            )
        if "onReplayDifference" in given and self.delivery != EXACTLY_ONCE:
            raise conflict(
                f"Option 'onReplayDifference' is given with delivery={self.delivery}, which "
                "does not detect repetitions.",
                "Remove one of them.",
            )


def transaction_of(given: OptionReader, delivery: str, *, streaming: bool) -> Transaction | None:
    """Return the identity of a batch write, or None if none is given."""
    named = [option for option in ("txnAppId", "txnVersion") if option in given]
    if not named:
        return None
    if streaming:
        raise conflict(
            f"Option {named[0]!r} is for batch writes.",
            "Remove it: a stream is identified by its checkpoint. In foreachBatch, set the option "
            "on the batch's df.write.",
        )
    if len(named) == 1:
        raise OptionError(
            f"Option {named[0]!r} is given alone.",
            remedy="Both are needed to recognise a repetition: set 'txnAppId' and 'txnVersion',"
            " or neither.",
            code="OPTION_MISSING",
        )
    if delivery != EXACTLY_ONCE:
        raise conflict(
            f"Option 'txnAppId' is given with delivery={delivery}, which does not drop"
            " repetitions.",
            "Remove 'delivery', or 'txnAppId' and 'txnVersion'.",
        )
    app_id = given.text("txnAppId")
    if not app_id:
        raise OptionError(
            "Option 'txnAppId' is empty.",
            remedy="Set it to the name of the application that writes, and do not change it.",
        )
    version = given.read(_TXN_VERSION)
    assert version is not None
    return Transaction(app_id, version)
