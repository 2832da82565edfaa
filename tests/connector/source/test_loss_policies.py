"""Each policy of `onDataLoss` for each kind of loss, with a store simulated by offsets."""

import pytest
from pyrocket.errors import (
    DataLossError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    OptionError,
    StoreUnavailableError,
    TopicRecreatedError,
)
from pyspark_pyrocket.options.policies import FAIL, SKIP, LossPolicy
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.resume import what_remains
from pyspark_pyrocket.source.stream_planner import (
    initial_offset,
    next_offset,
    planned_ranges,
)
from support.offsets import offsets

GO_ON = ("skip", "earliest", "latest")


def options(policy, subscription=None):
    return ReadOptions(
        path="/s",
        subscription=subscription or SubscribedTopics(("t",)),
        loss=LossPolicy(policy=policy),
    )


def policy(**given):
    return ReadOptions.parse(Request({"path": "/s", "topic": "t", **given}, "/")).loss.policy


def cleaned(store):
    store.grow("t", 0, minimum=15, maximum=30)


def truncated(store):
    store.epoch, store.cuts = 1, {("t", 0): 7}
    store.grow("t", 0, 30)


def ends_before(store):
    store.grow("t", 0, 6)


def recreated(store):
    store.ids["t"] = "another"
    store.grow("t", 0, minimum=12, maximum=30)


def recreated_by_java(store):
    store.ids["t"] = "another"
    store.grow("t", 0, 5)


LOSSES = [cleaned, truncated, ends_before, recreated, recreated_by_java]


@pytest.fixture
def stopped(numbers):
    """A simulated store, and the start offset of a query that has read ten of its messages."""
    store = numbers(t={0: (0, 10)})
    start, _ = store.step(initial_offset(store, options(FAIL)))
    return store, start


@pytest.mark.parametrize(
    ("happened", "error"),
    [
        (cleaned, OffsetOutOfRangeError),
        (truncated, LogTruncatedError),
        (ends_before, OffsetOutOfRangeError),
        (recreated, TopicRecreatedError),
        (recreated_by_java, TopicRecreatedError),
    ],
)
def test_policy_fail_raises_an_error_for_each_kind_of_loss(stopped, happened, error):
    store, start = stopped
    happened(store)
    with pytest.raises(error, match="onDataLoss to skip, earliest or latest"):
        next_offset(store, options(FAIL), start)


@pytest.mark.parametrize(
    ("happened", "seen", "lost"),
    [
        (cleaned, [("t", 0, 15, 30)], 5),
        (truncated, [("t", 0, 7, 30)], 0),
        (ends_before, [], 0),
        (recreated, [("t", 0, 12, 30)], 2),
        (recreated_by_java, [("t", 0, 0, 5)], 0),
    ],
)
def test_policy_skip_continues_and_counts_lost_messages(stopped, caplog, happened, seen, lost):
    store, start = stopped
    happened(store)
    end, read = store.step(start, options(SKIP))
    assert read == seen
    assert end.lost.by_topic() == {"t": {0: lost}}
    assert f"topic 't' queue 0 has lost {lost} messages; with onDataLoss=skip" in caplog.text
    assert next_offset(store, options(FAIL), end) is None


@pytest.mark.parametrize(
    ("happened", "seen", "lost"),
    [
        (cleaned, [("t", 0, 15, 30)], 5),
        (truncated, [("t", 0, 0, 30)], 0),
        (ends_before, [("t", 0, 0, 6)], 0),
        (recreated, [("t", 0, 12, 30)], 2),
        (recreated_by_java, [("t", 0, 0, 5)], 0),
    ],
)
def test_policy_earliest_restarts_the_queue_and_counts_lost_messages(stopped, happened, seen, lost):
    store, start = stopped
    happened(store)
    end, read = store.step(start, options("earliest"))
    assert (read, end.lost.by_topic()) == (seen, {"t": {0: lost}})


@pytest.mark.parametrize(
    ("happened", "lost"),
    [(cleaned, 20), (truncated, 23), (ends_before, 0), (recreated, 20), (recreated_by_java, 5)],
)
def test_policy_latest_continues_at_the_end_and_counts_lost_messages(stopped, happened, lost):
    """The micro-batch is empty and its end is saved: later messages are read."""
    store, start = stopped
    happened(store)
    end, read = store.step(start, options("latest"))
    last = store.known["t"][0].maximum
    assert (read, end.offsets) == ([], offsets({"t": {0: last}}))
    assert end.lost == offsets({"t": {0: lost}})
    store.grow("t", 0, last + 3, minimum=store.known["t"][0].minimum)
    assert store.step(end, options("latest"))[1] == [("t", 0, last, last + 3)]


@pytest.mark.parametrize("go_on", GO_ON)
@pytest.mark.parametrize("happened", LOSSES)
def test_an_invalid_offset_is_corrected_only_once(stopped, caplog, happened, go_on):
    store, start = stopped
    happened(store)
    start, _ = store.step(start, options(go_on))
    assert len(caplog.messages) == 1
    assert next_offset(store, options(go_on), start) is None
    assert next_offset(store, options(FAIL), start) is None


def test_lost_messages_add_up_over_all_runs_of_a_query(stopped):
    store, start = stopped
    cleaned(store)
    start, _ = store.step(start, options(SKIP))
    store.grow("t", 1, 4)
    start, _ = store.step(start, options(SKIP))
    store.grow("t", 0, minimum=33, maximum=40)
    start, _ = store.step(start, options(SKIP))
    assert start.lost.by_topic() == {"t": {0: 8}}
    assert start.to_json()["lost"] == {"t": {"broker-a": {"0": 8}}}


@pytest.mark.parametrize("go_on", GO_ON)
@pytest.mark.parametrize("happened", LOSSES)
def test_a_replay_after_a_loss_has_the_same_ranges(stopped, happened, go_on):
    store, start = stopped
    happened(store)
    end = next_offset(store, options(go_on), start)
    planned = store.read(start, end)
    store.grow("t", 0, minimum=25, maximum=99)  # More was deleted, and more was stored.
    assert store.read(start, end) == planned


def test_a_query_with_a_rate_limit_continues_after_a_loss(stopped):
    store, start = stopped
    cleaned(store)
    start, seen = store.step(start, options(SKIP), take=lambda begin, end: offsets({"t": {0: 20}}))
    assert seen == [("t", 0, 15, 20)]
    assert store.step(start, options(SKIP))[1] == [("t", 0, 20, 30)]


@pytest.mark.parametrize(
    ("happened", "left"),
    [(recreated, []), (truncated, [(5, 7)]), (lambda store: store.delete("t"), [])],
)
def test_a_replay_reads_only_the_planned_messages(numbers, happened, left):
    """Other messages may have the planned offsets now."""
    store = numbers(t={0: (5, 10)})
    start = initial_offset(store, options(FAIL))
    end = next_offset(store, options(FAIL), start)
    happened(store)
    planned = list(planned_ranges(start, end))
    with pytest.raises(DataLossError):
        list(what_remains(store, end, planned, Losses(LossPolicy())))
    losses = Losses(LossPolicy(policy=SKIP))
    kept = list(what_remains(store, end, planned, losses))
    assert [(each.start, each.end) for each in kept if each.rows] == left
    assert losses.counts == offsets({"t": {0: 5 - sum(end - start for start, end in left)}})


@pytest.mark.parametrize("go_on", GO_ON)
def test_another_store_is_an_error_under_every_policy(stopped, go_on):
    store, start = stopped
    store.uuid = "uuid-2"
    with pytest.raises(DataLossError) as info:
        next_offset(store, options(go_on), start)
    assert info.value.code == "STORE_CHANGED"


def test_an_unavailable_store_is_not_a_loss(stopped, monkeypatch):
    store, start = stopped

    def unavailable(topics):
        raise StoreUnavailableError("in recovery", code="STORE_RECOVERING")

    monkeypatch.setattr(store, "bounds", unavailable)
    with pytest.raises(StoreUnavailableError):
        next_offset(store, options(SKIP), start)


def test_kafkas_name_of_the_policy_is_accepted():
    assert policy() == policy(failOnDataLoss="true") == "fail"
    assert policy(failOnDataLoss="False") == policy(onDataLoss="Skip") == "skip"
    assert policy(onDataLoss="latest", failOnDataLoss="false") == "latest"
    assert policy(onDataLoss="fail", failOnDataLoss="true") == "fail"


@pytest.mark.parametrize(
    "given",
    [
        {"onDataLoss": "ignore"},
        {"onDataLoss": ""},
        {"failOnDataLoss": "no"},
        {"onDataLoss": "fail", "failOnDataLoss": "false"},
        {"onDataLoss": "skip", "failOnDataLoss": "true"},
    ],
)
def test_invalid_or_contradicting_policies_are_rejected(given):
    with pytest.raises(OptionError, match=r"(?i)dataloss"):
        policy(**given)
