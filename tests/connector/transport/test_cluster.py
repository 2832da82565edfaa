"""`endpoint` with name servers: which brokers are read, and what happens when one is down."""

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyrocket import Store, StoreConfig
from pyrocket.errors import OptionError, TransportError, UnsupportedError
from pyrocket.server.nameserver.route_table import RouteTable
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pyrocket import BatchCommit, DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.options.option import STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink.sink_checkpoint import SinkCheckpoint
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.task import rows_of
from pyspark_pyrocket.transport import cluster as module
from pyspark_pyrocket.transport.cluster import ClusterTarget, server_target
from pyspark_pyrocket.transport.endpoint import EndpointTarget
from support import name_server
from support.broker import served
from support.stores import bodies, message
from support.transports import disconnect, register

SCHEMA = default_columns(kafka=False, headers=False, text=False)
A, B = "broker-a", "broker-b"
SECONDS = 1


@dataclass
class Cluster:
    """Two brokers with one queue of topic t, in this process, and the table of a name server."""

    table: RouteTable
    name_server: str
    stores: dict
    brokers: dict = field(default_factory=dict)

    @property
    def options(self):
        return {"endpoint": self.name_server, "endpoint.timeout": f"{SECONDS}s", "topic": "t"}

    @property
    def target(self):
        timeout_ms = 1000 * SECONDS
        return server_target(Endpoint(addresses=(self.name_server,), timeout_ms=timeout_ms))

    def leave(self, name):
        self.table.disconnect(name)

    def join(self, name, address=None):
        register(self.table, name, address or self.brokers[name])


@pytest.fixture
def cluster(tmp_path):
    with ExitStack() as stack:
        table, stores, brokers = RouteTable(), {}, {}
        for name in (A, B):
            config = StoreConfig(broker_name=name)
            stores[name] = Store.open(tmp_path / name, create=True, config=config)
            stores[name].topics.create("t", read_queues=1, write_queues=1)
            for at in range(3):
                stores[name].append(message(f"{name}-{at}".encode(), keys=f"k{at}"))
            brokers[name] = stack.enter_context(served(stores[name]))
        address = stack.enter_context(name_server.serving(table))
        made = Cluster(table, address, stores, brokers)
        for name in (A, B):
            made.join(name)
        stack.callback(disconnect)
        yield made


@pytest.fixture
def always_refreshed(monkeypatch):
    monkeypatch.setattr(module, "REFRESH_S", -1)


def read(options, column="body"):
    """Read all rows as the tasks of a batch do."""
    reader = DefaultSource(options).reader(SCHEMA)
    asked = ReadOptions.parse(Request(options, "/"))
    tasks = [rows_of(each, (column,), asked) for each in reader.partitions()]
    return [row for task in tasks for batch in task for row in batch.column(0).to_pylist()]


def test_the_first_call_tells_whether_an_address_is_that_of_a_broker(cluster):
    direct = server_target(Endpoint(addresses=(cluster.brokers[A],)))
    assert isinstance(direct, EndpointTarget)
    assert isinstance(cluster.target, ClusterTarget)
    assert cluster.target.describe() == f"the brokers of the name server at {cluster.name_server}"
    assert direct.capabilities == cluster.target.capabilities


def test_a_server_that_is_neither_broker_nor_name_server_is_rejected(monkeypatch):
    monkeypatch.setattr(name_server.NameServer, "handler", lambda *_, **__: None)
    with name_server.serving(RouteTable()) as address:
        with pytest.raises(UnsupportedError) as info:
            server_target(Endpoint(addresses=(address,)))
        assert info.value.code == "PROTOCOL_UNKNOWN"


def test_a_batch_reads_all_live_brokers(cluster, always_refreshed):
    everything = sorted(f"{name}-{at}".encode() for name in (A, B) for at in range(3))
    assert sorted(read(cluster.options)) == everything
    cluster.leave(B)
    assert sorted(read(cluster.options)) == everything[:3]
    cluster.join(B)
    assert sorted(read(cluster.options)) == everything


def test_lookups_and_views_ask_each_broker(cluster):
    assert sorted(read({**cluster.options, "keys": "k1"})) == [b"broker-a-1", b"broker-b-1"]
    log = {name: value for name, value in cluster.options.items() if name != "topic"}
    assert len(read({**log, "view": "commitlog"})) == 6


def test_an_expected_broker_that_is_not_registered_is_awaited_and_named(cluster):
    cluster.leave(B)
    source = cluster.target.open_source()
    assert [*source.by_broker()] == [A]
    began = time.monotonic()
    with pytest.raises(TransportError, match=f"no broker {B}"):
        source.by_broker([A, B])
    assert SECONDS <= time.monotonic() - began < SECONDS + 5
    joining = threading.Timer(0.3, cluster.join, [B])
    joining.start()
    assert [*source.by_broker([A, B])] == [A, B]
    joining.join()


def test_a_registered_broker_that_does_not_answer_is_named(cluster):
    cluster.leave(B)
    cluster.join(B, "127.0.0.1:1")
    with pytest.raises(TransportError, match=f"The broker {B} at 127.0.0.1:1 did not answer"):
        cluster.target.open_source()


def test_another_broker_at_the_address_of_one_is_detected(cluster):
    cluster.leave(B)
    cluster.join(B, cluster.brokers[A])
    with pytest.raises(TransportError, match=f"is {A}, not {B}"):
        cluster.target.open_source()


def test_a_name_server_without_brokers_is_an_error(cluster):
    for name in (A, B):
        cluster.leave(name)
    began = time.monotonic()
    with pytest.raises(TransportError, match="knows no broker"):
        cluster.target.open_source()
    assert SECONDS <= time.monotonic() - began < SECONDS + 5


def test_the_known_brokers_are_read_while_no_name_server_answers(cluster, monkeypatch):
    with name_server.serving(cluster.table) as address:
        target = server_target(Endpoint(addresses=(address,), timeout_ms=1000 * SECONDS))
        assert [*target.open_source().by_broker()] == [A, B]
    monkeypatch.setattr(module, "REFRESH_S", -1)
    assert target.open_source().topics()["t"].read_queues == 2


def test_a_private_source_of_a_cluster_can_be_closed(cluster):
    with closing(cluster.target.open_own_source()) as own:
        assert [*own.identities()] == [A, B]
    assert [*cluster.target.open_source().identities()] == [A, B]


def test_a_stream_continues_without_a_removed_broker(cluster):
    def reader(**more):
        disconnect()
        options = {**cluster.options, "startingOffsets": "earliest", **more}
        return DefaultSource(options).streamReader(schema=SCHEMA)

    everything = ReadAllAvailable()
    first = reader()
    start = first.initialOffset()
    end = first.latestOffset(start, everything)
    assert len(reader().partitions(start, end)) == 2
    cluster.leave(B)
    cluster.stores[A].append(message(b"broker-a-3"))
    for call in (
        lambda: reader().latestOffset(end, everything),
        lambda: reader().partitions(start, end),
    ):
        with pytest.raises(TransportError, match=f"no broker {B}"):
            call()
    rest = reader(removedBrokers=B)
    later = rest.latestOffset(end, everything)
    assert [*later["brokers"]] == [A]
    assert later["offsets"] == {"t": {A: {"0": 4}}}
    (task,) = rest.partitions(end, later)
    assert [(each.start, each.end) for each in task.work.ranges] == [(3, 4)]
    assert len(rest.partitions(start, end)) == 1


def test_a_group_commits_what_a_batch_has_read(cluster):
    cluster.stores[B].append(message(b"broker-b-3"))
    plan = BatchCommit.plan("g", **cluster.options)
    assert plan.messages == 7
    assert len(read(dict(plan.options))) == 7
    with plan:
        cluster.stores[A].append(message(b"broker-a-3"))
    again = BatchCommit.plan("g", **cluster.options)
    assert read(dict(again.options)) == [b"broker-a-3"]


def test_a_broker_that_moves_is_found_at_its_new_address(cluster, always_refreshed):
    assert cluster.target.of_broker(B).endpoint.addresses == (cluster.brokers[B],)
    cluster.leave(B)
    cluster.join(B, "127.0.0.1:1")
    assert cluster.target.of_broker(B).endpoint.addresses == ("127.0.0.1:1",)


def write(cluster, *rows, **options):
    """Write rows as Spark does, and return the broker to which they went."""
    schema = StructType([StructField("body", BinaryType())])
    writer = DefaultSource({**cluster.options, **options}).writer(schema, False)
    body = pa.array([row.encode() for row in rows], pa.binary())
    writer.commit([writer.write(iter([pa.record_batch({"body": body})]))])
    found = [name for name in (A, B) if rows[0].encode() in bodies(cluster.stores[name])[0]]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_sink_writes_to_one_broker(cluster, delivery):
    assert write(cluster, "x", delivery=delivery) == A
    assert write(cluster, "y", delivery=delivery, brokerName=B) == B
    cluster.leave(A)
    disconnect()
    assert write(cluster, "z", delivery=delivery) == B
    with pytest.raises(TransportError, match=f"no broker {A}"):
        write(cluster, "lost", delivery=delivery, brokerName=A)


def test_the_broker_of_an_endpoint_is_checked_by_its_name(cluster):
    direct = {"endpoint": cluster.brokers[A]}
    assert write(cluster, "x", **direct, brokerName=A) == A
    with pytest.raises(TransportError, match=f"is {A}, not {B}"):
        write(cluster, "y", **direct, brokerName=B)


def test_a_sink_keeps_to_the_broker_of_its_checkpoint(cluster, tmp_path):
    checkpoint = SinkCheckpoint(tmp_path)
    assert checkpoint.broker() == ""
    target = cluster.target.of_broker("", checkpoint.broker())
    assert target.broker == A
    checkpoint.record("uuid-2", B)
    assert (checkpoint.store(), checkpoint.broker()) == ("uuid-2", B)
    assert cluster.target.of_broker("", checkpoint.broker()).broker == B
    assert cluster.target.of_broker(A, checkpoint.broker()).broker == A
    checkpoint.record("uuid-2")
    assert checkpoint.broker() == ""


def test_a_broker_name_needs_an_endpoint(tmp_path):
    options = {"path": str(tmp_path / "store"), "topic": "t", "brokerName": A}
    with pytest.raises(OptionError, match="brokerName") as info:
        DefaultSource(options).writer(SCHEMA, False)
    assert info.value.code == "OPTION_CONFLICT"


def test_the_topic_for_bad_records_is_created_at_each_broker(cluster):
    options = {**cluster.options, "badRecordsTopic": "bad", "valueFormat": "json"}
    options["valueSchema"] = "a INT"
    prepare_bad_records(cluster.target, ReadOptions.parse(Request(options, "/"), STREAM))
    assert all("bad" in store.topics.all() for store in cluster.stores.values())
