"""A client may give up at any moment of its call; the broker goes on."""

import os
import re
from pathlib import Path

import pytest
from pyrocket import Message, Store
from pyrocket.client import Producer
from support import broker_process

RPC = Path(__file__).resolve().parents[3] / "store" / "pyrocket" / "rpc"


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
    """The peer of a call that gRPC has freed ends the process: only `Origin` asks for it, and
    coroutines of the handler itself.
    """
    asked = {
        (str(path.relative_to(RPC)).replace(os.sep, "/"), line.strip())
        for path in RPC.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.peer\(\)|invocation_metadata\(\)", line)
    }
    assert all(path == "origin.py" or re.match(r"(async )?with ", line) for path, line in asked), (
        asked
    )
