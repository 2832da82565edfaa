"""Delayed messages, written by Spark."""

import pytest
from pyrocket import Store
from pyrocket.errors import PyrocketError
from pyspark.sql import functions as f
from support.direct import write
from support.shares import share

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
DELIVERIES = ["exactly-once", "at-least-once"]
YEAR_2020 = 1_577_836_800
HOUR = 3_600_000


def save(frame, box, **options):
    frame.write.format("pyrocket").mode("append").options(**{**box.options, **options}).save()


def waiting(box, topic, queue_id=0):
    """Return body → RocketMQ's own properties, for the pending messages in a queue."""
    with Store.open(box.path, read_only=True) as store:
        if topic not in store.topics.all():
            return {}
        found = store.read(topic, queue_id, 0, 100)
    return {stored.body: dict(stored.properties) for stored in found}


@pytest.mark.parametrize("delivery", share(DELIVERIES, 1))
def test_rows_are_delayed_as_their_columns_define(spark, box, delivery):
    box.create()
    rows = [(0, 0, None), (1, 2, None), (2, None, "2h30m"), (3, None, None), (4, None, "")]
    frame = spark.createDataFrame(rows, "id INT, delayLevel INT, delay STRING").select(
        f.col("id").cast("string").alias("body"),
        "delayLevel",
        "delay",
        f.when(f.col("id") == 3, f.current_timestamp() + f.expr("INTERVAL 1 HOUR"))
        .when(f.col("id") == 4, f.timestamp_seconds(f.lit(YEAR_2020)))
        .alias("deliverTimestamp"),
    )
    save(frame.coalesce(1), box, delivery=delivery)
    assert box.bodies() == [b"0", b"4"]
    (leveled,) = waiting(box, SCHEDULE, 1).values()
    assert (leveled["DELAY"], leveled["REAL_TOPIC"]) == ("2", "t")
    timed = waiting(box, TIMER)
    assert sorted(timed) == [b"2", b"3"]
    due = {body: int(own["TIMER_OUT_MS"]) for body, own in timed.items()}
    assert 0 <= due[b"2"] - due[b"3"] - 1.5 * HOUR < HOUR / 2
    assert {own["REAL_TOPIC"] for own in timed.values()} == {"t"}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((1, "1s"), "DELAY_TWICE"),
        ((-1, None), "the delay level -1"),
        ((None, "soon"), "the delay 'soon'"),
        ((None, "41d"), "TIMER_TOO_FAR"),
    ],
)
def test_an_invalid_delay_fails_the_task_with_its_row(box, row, what):
    rows = [("x", None, None), ("x", *row)]
    with pytest.raises(PyrocketError, match="row 1 ") as caught:
        write(box.options, "body STRING, delayLevel INT, delay STRING", rows)
    assert what in str(caught.value)
    assert box.rows() == 0


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_the_longest_delay_of_rows_is_an_option(box, delivery):
    box.create()
    given = (box.options, "body STRING, delay STRING", [("a", "41d")])
    write(*given, delivery=delivery, timerMaxDelay="60d")
    assert list(waiting(box, TIMER)) == [b"a"]
    with pytest.raises(PyrocketError, match=r"TIMER_TOO_FAR.*timerMaxDelay"):
        write(*given, delivery=delivery, timerMaxDelay="40d23h")
    assert list(waiting(box, TIMER)) == [b"a"]
