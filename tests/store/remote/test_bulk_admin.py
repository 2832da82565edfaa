"""What the commands of `tests/store/tools/cli` do not ask a broker for."""

import pytest
from pyrocket import Client, Connection, RemoteAdmin, Retention, Store
from pyrocket.errors import InvalidInputError, OptionError
from support.broker import served


@pytest.fixture
def place(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store, served(store) as address:
        client = Client(Connection(address))
        yield store, RemoteAdmin(client)
        client.close()


def test_a_deletion_that_is_repeated_after_a_lost_reply_is_not_an_error(place):
    _, admin = place
    admin.topics.create("orders")
    with pytest.raises(InvalidInputError) as caught:
        admin.topics.create("orders", exist_ok=False)
    assert caught.value.code == "TOPIC_EXISTS"
    admin.groups.create("readers")
    for _ in range(2):
        admin.client.call("DeleteTopic", name="orders")
        admin.client.call("DeleteGroup", group="readers")


def test_a_reset_has_exactly_one_target(place):
    _, admin = place
    admin.topics.create("orders")
    for given in ({}, {"rule": "first", "time_ms": 0}):
        with pytest.raises(OptionError):
            admin.client.call("ResetGroup", group="readers", topic="orders", **given)


def test_the_retention_is_that_of_the_store(place):
    store, admin = place
    assert admin.retention is None
    kept = Retention(hours=None, total_bytes=100_000, at_hours=(4, 5))
    admin.set_retention(kept)
    assert admin.retention == store.retention == kept
    admin.set_retention(None)
    assert admin.retention is None
