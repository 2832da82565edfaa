"""Errors of the broker are reported to RocketMQ's clients with a code, without a traceback."""

import pytest
from pyrocket import Store, errors
from pyrocket.errors import PyrocketError
from pyrocket.server.messaging.codes import refusal_of
from support.broker import served
from support.rocketmq_stub import Stub, code_of
from support.stores import set_disk_usage

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, PyrocketError)
    and kind is not errors.TransportError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_code_that_is_not_a_success(kind):
    refusal = refusal_of(kind("it failed.", remedy="Try again.", code="SOME_CODE"))
    assert refusal.code not in ("OK", "MULTIPLE_RESULTS", "MESSAGE_NOT_FOUND")
    assert "it failed. Try again." in refusal.text


def test_a_full_disk_is_named_and_leaves_no_traceback(tmp_path, monkeypatch, caplog):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    with served(store) as address:
        stub = Stub(address)
        with monkeypatch.context() as patch:
            set_disk_usage(patch, 1000)
            for _ in range(5):
                reply = stub.send(b"1")
                assert code_of(reply) == "INTERNAL_SERVER_ERROR"
                assert "DISK_FULL" in reply.status.message
        stub.close()
    assert not [one for one in caplog.records if one.exc_info]
