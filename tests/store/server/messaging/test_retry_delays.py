"""The delays of a group's retries, as clients get them."""

import pytest
from pyrocket import Store
from pyrocket.base.config import parse_delay_levels
from pyrocket.server.messaging.interface import number
from pyrocket.values.admin import Backoff
from support.broker import served
from support.rocketmq_stub import Stub, resource


@pytest.mark.parametrize("delays", [None, "3s 4s"])
def test_the_delays_that_are_shown_are_sent_to_clients(tmp_path, delays):
    store = Store.open(tmp_path, create=True)
    store.topics.create("t")
    store.groups.create("g")
    if delays is not None:
        store.groups.update("g", backoff=Backoff(parse_delay_levels(delays)))
    settings = {
        "client_type": 2,
        "user_agent": {"language": number("Language", "JAVA")},
        "subscription": {"group": resource("g"), "subscriptions": [{"topic": resource("t")}]},
    }
    with served(store) as address:
        stub = Stub(address)
        with stub.telemetry(**settings) as commands:
            policy = next(commands).settings.backoff_policy
        stub.close()
        shown = store.groups.all()["g"].backoff.delays_ms
    sent = [one.seconds for one in policy.customized_backoff.next]
    assert sent == [ms // 1000 for ms in shown]
    assert sent[:2] == ([3, 4] if delays else [10, 30])
