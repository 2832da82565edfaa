"""Views of the directories of RocketMQ's brokers, read in place."""

import base64
import json
import shutil

import pytest
from golden.java import CLEAN, GOLDEN, TXCHECK, listing
from pyrocket import VIEW_COLUMNS, Store

JAVA5 = "java550-clean"
SENT_BACK = {"consumerGroup": "workers", "originTopic": "work"}


def rows(path, view, columns=None, **options):
    """Return all rows of a view as dictionaries."""
    with Store.open(path, read_only=True) as store:
        names = columns or [*VIEW_COLUMNS[view]]
        return [
            row
            for part in store.views.plan(view, **options)
            for batch in store.views.scan(part, names, verify_crc=True)
            for row in batch.to_pylist()
        ]


def pulled(topic):
    """Return the messages that RocketMQ's client pulled from queue 0 of a topic."""
    queues = json.loads((GOLDEN / f"{JAVA5}.json").read_text())
    return next(one["messages"] for one in queues if (one["topic"], one["queue"]) == (topic, 0))


def ms(time):
    return round(time.timestamp() * 1000)


@pytest.mark.parametrize(("view", "topic"), [("retry", "%RETRY%workers"), ("dlq", "%DLQ%workers")])
def test_retries_and_dead_letters_equal_those_that_rocketmqs_client_pulled(view, topic):
    (row,) = rows(GOLDEN / JAVA5, view)
    (java,) = pulled(topic)
    assert {name: row[name] for name in SENT_BACK} == SENT_BACK
    assert row["originMsgId"] == java["properties"]["ORIGIN_MESSAGE_ID"]
    assert row["body"] == base64.b64decode(java["body"])
    assert dict(row["systemProperties"]) == java["properties"]
    for name in ("topic", "queueOffset", "msgId", "reconsumeTimes", "physicalOffset", "storeSize"):
        assert row[name] == java[name]
    assert ms(row["bornTimestamp"]) == java["bornTimestamp"]
    assert ms(row["storeTimestamp"]) == java["storeTimestamp"]
    if view == "retry":
        assert (row["consumed"], row["dueTimestamp"]) == (True, None)


def test_the_origin_of_a_dead_letter_is_found_by_its_id():
    (dead,) = rows(GOLDEN / JAVA5, "dlq")
    with Store.open(GOLDEN / JAVA5, read_only=True) as store:
        first = store.lookup.by_offset_id(dead["originMsgId"])
    assert (first.topic, first.body, first.msg_id) == ("work", b"bad", dead["msgId"])


def test_pending_retries_are_shown_with_their_due_time(tmp_path):
    root = shutil.copytree(GOLDEN / JAVA5, tmp_path / "store")
    for file in (root / "config").glob("delayOffset*"):
        file.unlink()  # As if the broker had stopped before the delivery.
    there, waiting = rows(root, "retry")
    assert there["dueTimestamp"] is None
    assert {name: waiting[name] for name in SENT_BACK} == SENT_BACK
    assert (waiting["topic"], waiting["consumed"]) == ("%RETRY%workers", False)
    assert ms(waiting["dueTimestamp"]) == ms(waiting["storeTimestamp"]) + 1000
    assert rows(root, "retry", group="pullers") == []


def test_every_view_of_rocketmqs_files_is_read_without_writing():
    for name, records in ((CLEAN, 30), (TXCHECK, 10), (JAVA5, 54)):
        before = listing(GOLDEN / name)
        log = rows(GOLDEN / name, "commitlog", ["topic", "physicalOffset", "body", "inQueue"])
        assert len(log) == records
        places = [row["physicalOffset"] for row in log]
        assert places == sorted(places)
        assert all(row["inQueue"] for row in log)
        for view in ("retry", "dlq", "groups", "topics"):
            rows(GOLDEN / name, view)
        assert listing(GOLDEN / name) == before, "no file has been written"


def test_half_messages_and_decisions_are_in_the_log_view():
    log = rows(GOLDEN / CLEAN, "commitlog", ["topic", "body", "tags", "preparedTransactionOffset"])
    half, op, message = (
        row for row in log if row["topic"].startswith("RMQ_SYS") or row["tags"] == "TagC"
    )
    by_topic = {row["topic"]: row for row in (half, op, message)}
    assert by_topic["RMQ_SYS_TRANS_HALF_TOPIC"]["body"] == b"half"
    assert by_topic["RMQ_SYS_TRANS_OP_HALF_TOPIC"]["tags"] == "d"
    assert by_topic["TopicTest"]["preparedTransactionOffset"] > 0


def test_the_view_of_groups_shows_the_progress_of_rocketmqs_consumers():
    (first, second) = rows(GOLDEN / CLEAN, "groups", group="groupA")[1:3]
    assert (first["topic"], first["queueId"], first["committedOffset"]) == ("TopicTest", 0, 5)
    assert (first["minOffset"], first["maxOffset"], first["lag"], first["lost"]) == (0, 14, 9, 0)
    assert (second["queueId"], second["lag"]) == (1, 13 - 7)
    with Store.open(GOLDEN / CLEAN, read_only=True) as store:
        next_one = store.read("TopicTest", 0, 5)[0]
        behind = store.read("TopicTest", 0, 5, 100)
    assert ms(first["nextStoreTimestamp"]) == next_one.store_timestamp
    assert first["lagBytes"] == sum(one.store_size for one in behind)


def test_the_view_of_topics_shows_their_content():
    topics = {row["topic"]: row for row in rows(GOLDEN / CLEAN, "topics")}
    test = topics["TopicTest"]
    assert (test["kind"], test["perm"], test["messages"]) == ("user", 6, 27)
    assert [(q["queueId"], q["minOffset"], q["maxOffset"]) for q in test["queues"]] == [
        (0, 0, 14),
        (1, 0, 13),
    ]
    assert topics["SCHEDULE_TOPIC_XXXX"]["kind"] == "system"
    assert topics["BenchmarkTest"]["messages"] == 0
    assert topics["BenchmarkTest"]["queues"] == []
    kinds = {row["topic"]: row["kind"] for row in rows(GOLDEN / JAVA5, "topics")}
    assert (kinds["%RETRY%workers"], kinds["%DLQ%workers"]) == ("retry", "dead-letter")
    with Store.open(GOLDEN / CLEAN, read_only=True) as store:
        stored = [m.store_timestamp for q in (0, 1) for m in store.read("TopicTest", q, 0, 99)]
    assert (ms(test["firstStoreTimestamp"]), ms(test["lastStoreTimestamp"])) == (
        min(stored),
        max(stored),
    )
