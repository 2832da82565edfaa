"""A broker keeps descriptors for its own files, however many clients connect."""

import resource

from pyrocket import Client, Connection, Store
from pyrocket.server import call_server
from support.broker import served
from support.name_server import wait_until
from support.raw_http2 import RawConnection


def test_connections_above_the_limit_are_closed_and_the_others_served(tmp_path, monkeypatch):
    limit = call_server._OWN_FILES + 3
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    with served(store) as address:
        client = Client(Connection(address))
        client.call("Topics")
        others = [RawConnection(address) for _ in range(6)]
        wait_until(lambda: sum(one.is_closed for one in others) == 4)
        client.call("Prepare", topic="t")
        for one in others:
            one.close()
        again = Client(Connection(address))
        again.call("Topics")
        for one in (client, again):
            one.close()
