"""SQL subscriptions in `consumerFilter.json`, in RocketMQ's form."""

import re
from pathlib import Path

import pytest
from pyrocket.errors import InvalidInputError
from pyrocket.formats.bloom_filter import bit_positions, murmur3
from pyrocket.formats.fastjson import loads

JAVA = Path(__file__).resolve().parents[2] / "golden/java498-clean/config/consumerFilter.json"
FILE = "config/consumerFilter.json"


def table(path):
    return loads((path / FILE).read_text())["filterDataByTopic"]


def test_a_subscription_is_saved_as_rocketmq_does(store, path, clock):
    """The saved file equals the file that a RocketMQ broker wrote, except for its times."""
    store.groups.subscribe("groupA", {"TopicTest": "a > 5"})
    ours = (path / FILE).read_text()
    assert re.sub(r"[0-9]{13}", "TIME", ours) == re.sub(r"[0-9]{13}", "TIME", JAVA.read_text())
    assert str(clock.now) in ours


def test_saving_an_unchanged_subscription_writes_nothing(store, path):
    store.groups.subscribe("g", {"T": "a > 5"})
    before = (path / FILE).stat()
    store.groups.subscribe("g", {"T": "a > 5"})
    assert (path / FILE).stat().st_mtime_ns == before.st_mtime_ns


def test_a_subscription_that_is_not_repeated_ends_and_is_removed_a_day_later(store, path, clock):
    store.groups.subscribe("g", {"T": "a > 5", "U": "b = 1"})
    store.groups.subscribe("h", {"T": "c = 2"})
    clock.now += 1000
    store.groups.subscribe("g", {"U": "b = 1"})
    assert store.groups.filters()["T", "g"].dead_ms == clock.now
    assert not store.groups.filters()["T", "h"].dead_ms
    clock.now += 24 * 3_600_000
    store.groups.subscribe("g", {"U": "b = 2"})
    assert {*store.groups.filters()} == {("T", "h"), ("U", "g")}
    assert store.groups.filters()["U", "g"].expression == "b = 2"


def test_an_ended_subscription_can_be_renewed(store, clock):
    store.groups.subscribe("g", {"T": "a > 5"})
    store.groups.subscribe("g", {})
    store.groups.subscribe("g", {"T": "a > 5"})
    assert store.groups.filters()["T", "g"].dead_ms == 0


def test_an_invalid_expression_is_rejected_with_the_error_of_the_parser(store, path):
    with pytest.raises(InvalidInputError, match="SQL_INVALID"):
        store.groups.subscribe("g", {"T": "a > 5", "U": "a >"})
    assert not (path / FILE).exists()


def test_files_of_rocketmq_are_read_and_preserved(store, path):
    theirs = JAVA.read_text()
    (path / FILE).parent.mkdir(exist_ok=True)
    (path / FILE).write_text(theirs.replace('"dead":', '"more":7,"dead":'))
    assert store.groups.filters()["TopicTest", "groupA"].expression == "a > 5"
    store.groups.subscribe("g", {"TopicTest": "b = 1"})
    assert table(path)["TopicTest"]["groupFilterData"]["groupA"]["more"] == 7


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("hello", 0xCBD8A7B341BD9B02),
        ("hello, world", 0x342FAC623A5EBC8E),
        ("The quick brown fox jumps over the lazy dog.", 0xCD99481F9EE902C9),
    ],
)
def test_murmur3_returns_the_published_hashes(text, hashed):
    """The hashes are test vectors of the author's implementation."""
    assert murmur3(text.encode()) == hashed


def test_bit_positions_are_inside_the_filter():
    assert all(0 <= bit < 112 for n in range(200) for bit in bit_positions(f"g{n}", "t" * n))
