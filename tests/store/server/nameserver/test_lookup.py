"""Clients that find the brokers of topics through name servers."""

import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pyrocket.base.arguments import parse_addresses
from pyrocket.errors import OptionError, TransportError
from pyrocket.remote.lookup import AddressUrl, RouteLookup
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.values.routes import BrokerData, QueueData, Registration, TopicData
from support import name_server

ORDERS = TopicData("orders", 4, 2, 6, message_type="FIFO")


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def table_with(*names):
    table = RouteTable()
    for name in names:
        table.register(Registration("c", name, 0, f"{name}.example:8081", 3, (ORDERS,)), name)
    return table


@contextmanager
def looking(addresses):
    lookup = RouteLookup(addresses)
    yield lookup
    lookup.close()


def brokers(lookup, topic="orders"):
    return [broker.name for broker in lookup.route(topic).brokers]


def test_a_route_has_the_queues_and_the_brokers_of_the_name_server():
    with name_server.serving(table_with("a")) as address, looking([address]) as lookup:
        route = lookup.route("orders")
        assert route.queues == [QueueData("a", ORDERS)]
        assert route.brokers == [BrokerData("c", "a", {0: "a.example:8081"}, 3)]
        assert brokers(lookup, "missing") == []


def test_brokers_are_found_with_the_addresses_of_their_primaries_and_replicas():
    table = table_with("b", "a")
    table.register(Registration("c", "b", 1, "replica.example:8081", 3, ()), "replica")
    addresses = {"a": "a.example:8081", "b": "b.example:8081"}
    with ExitStack() as stack:
        address = stack.enter_context(name_server.serving(table))
        lookup = stack.enter_context(looking(["127.0.0.1:1", address]))
        assert lookup.brokers() == addresses
        assert lookup.all_brokers()["b"] == {0: addresses["b"], 1: "replica.example:8081"}
        table.disconnect("b")
        assert lookup.brokers() == {"a": "a.example:8081"}
        assert lookup.all_brokers()["b"] == {1: "replica.example:8081"}
    with looking([address]) as lookup, pytest.raises(TransportError):
        lookup.brokers()


def test_a_route_is_asked_for_each_time():
    table = table_with("a")
    with name_server.serving(table) as address, looking([address]) as lookup:
        assert brokers(lookup) == ["a"]
        table.disconnect("a")
        assert brokers(lookup) == []
        table.register(Registration("c", "b", 0, "b.example:8081", 1, (ORDERS,)), "b")
        assert brokers(lookup) == ["b"]


def test_the_next_name_server_is_asked_if_one_fails():
    with ExitStack() as stack:
        gone, dead = stack.enter_context(name_server.running())
        gone.kill()
        gone.wait(10)
        live = stack.enter_context(name_server.serving(table_with("a")))
        for _ in range(5):  # In either order.
            with looking([dead, live]) as lookup:
                assert brokers(lookup) == ["a"]
        with looking([dead]) as lookup, pytest.raises(TransportError, match=dead):
            lookup.route("orders")


def test_clients_spread_over_the_name_servers_and_each_asks_one():
    with ExitStack() as stack:
        addresses = [stack.enter_context(name_server.serving(table_with(n))) for n in ("a", "b")]
        seen = set()
        for _ in range(30):
            with looking(addresses) as lookup:
                found = brokers(lookup)
                assert brokers(lookup) == found
                seen.add(*found)
        assert seen == {"a", "b"}


def test_the_last_route_remains_in_use_while_no_name_server_answers():
    with ExitStack() as stack:
        address = stack.enter_context(name_server.serving(table_with("a")))
        lookup = RouteLookup([address])
        assert brokers(lookup) == ["a"]
    for _ in range(2):
        assert brokers(lookup) == ["a"]
    lookup.close()


@contextmanager
def published(state):
    """Publish `state["text"]` at a URL; without it, the reply is an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state["count"] = state.get("count", 0) + 1
            self.send_response(200 if "text" in state else 500)
            self.end_headers()
            self.wfile.write(state.get("text", "").encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_addresses_at_a_url_are_read_every_2_minutes(clock):
    state = {"text": "a:1; b:2\n"}
    with published(state) as url:
        addresses = AddressUrl(url, clock)
        assert addresses.current() == ("a:1", "b:2")
        state["text"] = "c:3"
        clock.seconds += 119
        assert addresses.current() == ("a:1", "b:2")
        clock.seconds += 1
        assert addresses.current() == ("c:3",)
        assert state["count"] == 2
        for text in ("not an address", ""):
            state["text"] = text
            clock.seconds += 120
            assert addresses.current() == ("c:3",)
        del state["text"]
        clock.seconds += 120
        assert addresses.current() == ("c:3",)
        with pytest.raises(TransportError, match="cannot be read"):
            AddressUrl(url, clock).current()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "a:1", ""])
def test_only_http_urls_are_accepted(url):
    with pytest.raises(OptionError) as caught:
        AddressUrl(url)
    assert caught.value.code == "ADDRESS_INVALID"


def test_addresses_are_separated_by_commas_or_semicolons():
    assert parse_addresses("a:1, b:2;c:3;\n") == ("a:1", "b:2", "c:3")
    with pytest.raises(OptionError):
        parse_addresses("a:1,,b:2")
