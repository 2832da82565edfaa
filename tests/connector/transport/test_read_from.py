"""`readFrom`: what tasks read at a replica, and what happens when it is behind or gone."""

import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from pyrocket import MessageQueue, QueueRange, Store, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.errors import OptionError, TransportError
from pyrocket.metadata.epochs import Epochs
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.values.routes import Registration
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.task import rows_of
from pyspark_pyrocket.transport import cluster as module
from pyspark_pyrocket.transport.cluster import server_target
from support import name_server
from support.broker import served
from support.stores import message
from support.transports import disconnect

SCHEMA = default_columns(kafka=False, headers=False, text=False)
A = "broker-a"
SMALL_FILES = {"log_file_bytes": 1 << 20, "queue_file_entries": 1000, "index_slots": 100}


@dataclass
class Pair:
    """The stores of a primary and of a copy, each served, and the table of a name server.

    The copy has the primary's three messages. What is appended to both afterwards differs, so that
    a test sees which was read.
    """

    table: RouteTable
    name_server: str
    primary: Store
    replica: Store
    addresses: dict
    stops: dict

    def append(self, store, *rows):
        for body in rows:
            store.append(message(body))

    def options(self, read_from, **more):
        servers = {"endpoint": self.name_server, "endpoint.timeout": "1s"}
        return {**servers, "topic": "t", "readFrom": read_from, **more}

    def read(self, read_from, **more):
        """Read all rows as the tasks of a batch do."""
        options = self.options(read_from, **more)
        asked = ReadOptions.parse(Request(options, "/"))
        tasks = DefaultSource(options).reader(SCHEMA).partitions()
        batches = [batch for task in tasks for batch in rows_of(task, ("body",), asked)]
        return [row for batch in batches for row in batch.column(0).to_pylist()]

    def target(self, read_from):
        """Return the target of a task."""
        servers = {"addresses": (self.name_server,), "timeout_ms": 1000}
        source = server_target(Endpoint(**servers, read_from=read_from)).open_source()
        return source.by_broker()[A].target


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REFRESH_S", -1)
    config = StoreConfig(broker_name=A, **SMALL_FILES)
    with Store.open(tmp_path / "p", create=True, config=config) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for at in range(3):
            store.append(message(b"m%d" % at, keys=f"k{at}"))
    shutil.copytree(tmp_path / "p", tmp_path / "r")
    with ExitStack() as stack:
        stores = [Store.open(tmp_path / name) for name in "pr"]
        table, addresses, stops = RouteTable(), {}, {}
        for number, store in enumerate(stores):
            own = stack.enter_context(ExitStack())
            address = addresses[number] = own.enter_context(served(store))
            stops[number] = own.close
            given = Registration("c", A, number, address, 1, (), store=store.uuid)
            table.register(given, number)
        at = stack.enter_context(name_server.serving(table))
        stack.callback(disconnect)
        yield Pair(table, at, *stores, addresses, stops)


FIRST = [b"m0", b"m1", b"m2"]


def test_messages_are_read_where_the_option_says(pair):
    pair.append(pair.primary, b"primary")
    pair.append(pair.replica, b"replica")
    assert pair.read("primary") == [*FIRST, b"primary"]
    assert pair.read("replica") == pair.read("any") == [*FIRST, b"replica"]
    assert pair.read("replica", tags="*", startingOffsets='{"t":{"0":2}}') == [b"m2", b"replica"]


def test_offsets_look_ups_and_views_come_from_the_primary(pair):
    pair.append(pair.replica, b"replica")
    assert pair.read("replica") == FIRST
    pair.append(pair.primary, b"primary")
    assert pair.read("replica", keys="k1") == [b"m1"]
    options = pair.options("replica", view="commitlog")
    asked = ReadOptions.parse(Request(options, "/"))
    tasks = DefaultSource(options).reader(SCHEMA).partitions()
    batches = [batch for task in tasks for batch in rows_of(task, ("body",), asked)]
    assert [row for batch in batches for row in batch.column(0).to_pylist()][-1] == b"primary"


def test_a_replica_that_is_behind_is_awaited_or_the_primary_is_read(pair):
    pair.append(pair.primary, b"primary")
    assert pair.read("any") == [*FIRST, b"primary"]
    for lost in ("fail", "skip"):
        with pytest.raises(TransportError, match="planned messages") as info:
            pair.read("replica", onDataLoss=lost)
        assert info.value.code == "REPLICA_UNAVAILABLE"
    thread = threading.Timer(0.3, lambda: pair.append(pair.replica, b"replica"))
    thread.start()
    assert pair.read("replica") == [*FIRST, b"replica"]
    thread.join()


def test_a_topic_that_the_replica_does_not_have_yet_is_not_lost(pair):
    pair.primary.topics.create("u", read_queues=1, write_queues=1)
    pair.primary.append(message(b"new", topic="u"))
    assert pair.read("any", topic="u", onDataLoss="skip") == [b"new"]
    with pytest.raises(TransportError, match="planned messages"):
        pair.read("replica", topic="u", onDataLoss="skip")


@pytest.mark.parametrize("is_registered", [True, False], ids=["registered", "unregistered"])
def test_without_a_replica_the_primary_is_read_or_the_error_says_so(pair, is_registered):
    pair.append(pair.primary, b"primary")
    pair.append(pair.replica, b"replica")
    pair.stops[1]()
    if not is_registered:
        pair.table.disconnect(1)
    started = time.monotonic()
    assert pair.read("any") == [*FIRST, b"primary"]
    assert time.monotonic() - started < 1
    with pytest.raises(TransportError, match=A) as info:
        pair.read("replica")
    assert info.value.code == "REPLICA_UNAVAILABLE"
    assert "readFrom=any" in info.value.remedy


def test_a_replica_that_comes_back_is_read_again(pair):
    pair.append(pair.primary, b"primary")
    pair.append(pair.replica, b"replica")
    pair.stops[1]()
    assert pair.read("any")[-1] == b"primary"
    port = int(pair.addresses[1].rpartition(":")[2])
    with served(Store.open(pair.replica.path), port=port):
        assert pair.read("any")[-1] == b"replica"


def test_a_read_goes_on_at_the_primary_after_the_replica_has_gone(pair):
    target = pair.target("any")
    ranges = [QueueRange(MessageQueue("t", A, 0), 0, 3)]
    reader = target.open_reader(ranges)
    assert reader.client.connection.address == pair.addresses[1]
    pair.stops[1]()
    assert [len(part) for part in reader.slices(ranges)] == [3]
    assert reader.client.connection.address == pair.addresses[0]


def test_a_primary_that_is_down_does_not_hinder_tasks(pair):
    task = pair.target("any")
    pair.stops[0]()
    assert task.open_reader(()).client.connection.address == pair.addresses[1]


@pytest.mark.parametrize("is_task", [False, True])
def test_a_promoted_broker_is_found_at_its_new_address(pair, is_task):
    """By a call of the driver that waits, and by a task that was planned before."""
    source = pair.target("primary").open_source()
    source = source.target.open_source() if is_task else source
    assert source.topics()
    pair.stops[0]()
    with Store.open(pair.primary.path) as store, served(store) as address:
        given = Registration("c", A, 0, address, 1, (), store=store.uuid, term=1)
        pair.table.register(given, 2)
        assert source.topics()
        assert source.client.connection.address == address


def test_a_replica_that_may_have_what_the_primary_has_lost_is_not_read(pair):
    queue = MessageQueue("t", A, 0)
    for epoch, address in ((0, pair.addresses[1]), (1, pair.addresses[0])):
        reader = pair.target("any").open_reader([QueueRange(queue, 0, 1, epoch)])
        assert reader.client.connection.address == address
    Epochs(Layout(pair.replica.path)).begin({})
    reader = pair.target("any").open_reader([QueueRange(queue, 0, 1, 1)])
    assert reader.client.connection.address == pair.addresses[1]


def test_a_broker_has_no_replicas_without_name_servers(pair):
    with pytest.raises(OptionError, match="needs name servers") as info:
        server_target(Endpoint(addresses=(pair.addresses[1],), read_from="any"))
    assert info.value.code == "OPTION_UNSUPPORTED"
    for target in ({"path": "/store"}, {"namesrv": "h:1"}):
        with pytest.raises(OptionError, match="needs name servers"):
            ReadOptions.parse(Request({**target, "topic": "t", "readFrom": "any"}, "/"))
