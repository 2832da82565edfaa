"""A client may give up at any moment of its call; the broker goes on."""

import re
from pathlib import Path

import pyrocket.server
import pytest
from pyrocket import Message, Store
from pyrocket.client import Producer
from support import broker_process

SERVER = Path(pyrocket.server.__file__).parent


@pytest.mark.crash
@pytest.mark.slow
def test_a_broker_outlives_the_calls_of_clients_that_have_given_up(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("orders")
    with broker_process.running(tmp_path / "s") as (broker, served):
        with Producer(endpoint=served.listen[0], retries=0, max_pending=100_000) as producer:
            for _ in range(8):
                sent = [
                    producer.send_async(Message(topic="orders", body=b"1"), timeout_ms=1 + number)
                    for number in range(300)
                ]
                failed = [one.exception(30) is not None for one in sent]
                assert broker.poll() is None
                assert any(failed)
        assert broker.poll() is None


def test_threads_ask_no_call_for_its_client():
    """The peer of a call that gRPC has freed ends the process: only `Origin` asks for it."""
    asked = {
        path.name
        for path in SERVER.rglob("*.py")
        if re.search(r"\.peer\(\)|invocation_metadata\(\)", path.read_text())
    }
    assert asked == {"incoming.py"}
