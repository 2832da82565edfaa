"""The settings of consumers and their bounds."""

import dataclasses

import pytest
from pyrocket.client import Producer, PullConsumer, PushConsumer
from pyrocket.client.config import (
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
)
from pyrocket.errors import GroupNameError, InvalidInputError, TopicNameError
from pyrocket.values.consuming import Subscription

BOUNDS = {
    "thread_max": (1, 1000),
    "consume_concurrently_max_span": (1, 65_535),
    "pull_threshold_for_queue": (1, 65_535),
    "pull_threshold_size_for_queue": (1, 1024),
    "pull_threshold_for_topic": (-1, 6_553_500),
    "pull_threshold_size_for_topic": (-1, 102_400),
    "pull_interval_ms": (0, 65_535),
    "consume_message_batch_max_size": (1, 1024),
    "pull_batch_size": (1, 1024),
    "max_reconsume_times": (-1, 2**31 - 1),
    "suspend_ms": (10, 30_000),
    "consume_timeout_min": (1, 2**31 - 1),
    "stop_timeout_ms": (0, 2**31 - 1),
}
"""RocketMQ's bounds."""

DEFAULTS = {
    "thread_max": 20,
    "consume_concurrently_max_span": 2000,
    "pull_threshold_for_queue": 1000,
    "pull_threshold_size_for_queue": 100,
    "pull_threshold_for_topic": -1,
    "pull_threshold_size_for_topic": -1,
    "pull_interval_ms": 0,
    "consume_message_batch_max_size": 1,
    "pull_batch_size": 32,
    "max_reconsume_times": -1,
    "suspend_ms": 1000,
    "consume_timeout_min": 15,
}
"""RocketMQ's defaults; ours for `stop_timeout_ms`."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_those_of_rocketmq(name):
    assert getattr(ConsumerConfig(group="g"), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_valid_and_values_beyond_them_are_errors(name):
    low, high = BOUNDS[name]
    for value in (low, high):
        assert getattr(ConsumerConfig(group="g", **{name: value}), name) == value
    for value in (low - 1, high + 1, 1.5, "1", True, None):
        with pytest.raises(InvalidInputError, match=name) as caught:
            ConsumerConfig(group="g", **{name: value})
        assert caught.value.code == "CONSUMER_CONFIG"


@pytest.mark.parametrize("name", ["pull_threshold_for_topic", "pull_threshold_size_for_topic"])
def test_a_limit_of_zero_for_a_topic_is_an_error(name):
    with pytest.raises(InvalidInputError, match=name):
        ConsumerConfig(group="g", **{name: 0})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group", "DEFAULT_CONSUMER"),
        ("message_model", "ALL"),
        ("consume_from", "middle"),
        ("consume_timestamp", "2021"),
        ("missing_topic", "create"),
        ("strategy", "averagely"),
        ("subscriptions", "orders"),
        ("subscriptions", {"orders": 5}),
        ("subscriptions", {"orders": Subscription("a", "REGEX")}),
        ("subscriptions", {"%RETRY%g": "*"}),
    ],
)
def test_an_invalid_setting_is_an_error_that_names_it(name, value):
    with pytest.raises(InvalidInputError, match=name) as caught:
        ConsumerConfig(**{"group": "g", name: value})
    assert caught.value.code == "CONSUMER_CONFIG"


def test_illegal_names_and_expressions_are_errors():
    with pytest.raises(GroupNameError):
        ConsumerConfig(group="no spaces")
    with pytest.raises(TopicNameError):
        ConsumerConfig(group="g", subscriptions={"no spaces": "*"})
    with pytest.raises(InvalidInputError, match="a >"):
        ConsumerConfig(group="g", subscriptions={"orders": Subscription("a >", "SQL92")})


def test_the_typed_settings_are_the_fields_of_the_configurations():
    fields = {one.name for one in dataclasses.fields(ConsumerConfig)}
    assert {*ConsumerSettings.__annotations__} == fields - {"group", "subscriptions"}
    fields = {one.name for one in dataclasses.fields(ProducerConfig)}
    assert {*ProducerSettings.__annotations__} == fields - {"group"}


@pytest.mark.parametrize(
    ("client", "wrong", "near"),
    [
        (PushConsumer, "thread_maxx", "thread_max"),
        (PushConsumer, "end_point", "endpoint"),
        (PushConsumer, "pull_batchsize", "pull_batch_size"),
        (PullConsumer, "consume_form", "consume_from"),
        (PullConsumer, "instanse", "instance"),
        (Producer, "retry", "retries"),
        (Producer, "endpoints", "endpoint"),
    ],
)
def test_a_mistyped_setting_is_an_error_with_the_nearest_name(tmp_path, client, wrong, near):
    more = {"subscriptions": {}, "listener": print} if client is PushConsumer else {}
    with pytest.raises(InvalidInputError, match=f"Did you mean {near!r}") as caught:
        client("g", path=tmp_path, **{wrong: 3}, **more)
    assert wrong in caught.value.message
    assert caught.value.code == f"{'PRODUCER' if client is Producer else 'CONSUMER'}_CONFIG"
