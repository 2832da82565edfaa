"""The output of `python -m pyrocket.wire.proto` is up to date with the `.proto` files, and a broker
has an answer to each call in them.
"""

import pytest
from pyrocket import Store
from pyrocket.broker.broker import Broker
from pyrocket.broker.client_calls import ClientCalls
from pyrocket.server.service import BulkService, calls_of
from pyrocket.wire.descriptors import service
from pyrocket.wire.proto.__main__ import COMPILED, FOLDER, compile_protos


def test_the_descriptors_are_up_to_date(tmp_path):
    pytest.importorskip("grpc_tools")
    compile_protos(tmp_path)
    assert (tmp_path / COMPILED).read_bytes() == (FOLDER / COMPILED).read_bytes()


def test_each_call_has_an_answer_that_takes_its_request(tmp_path):
    broker = Broker(Store.open(tmp_path / "store", create=True))
    bulk = {call.name: call for call in BulkService(broker).calls()}
    clients = calls_of("pyrocket.v1.Clients", ClientCalls(broker).table())
    broker.close()
    assert {*bulk, "Watch", "Replicate"} == {*service("pyrocket.v1.Broker").methods_by_name}
    assert {*clients, "Notifications"} == {*service("pyrocket.v1.Clients").methods_by_name}
    for call in (*bulk.values(), *clients.values()):
        fields = {*call.request.DESCRIPTOR.fields_by_name} if call.name != "Hello" else set()
        assert fields == {*call.hints}, call.name
