"""Records one session of a client with a broker as bytes, for later releases.

python tests/golden/wire_session.py records the session with this release, once
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pyarrow as pa
from pyrocket import (
    Client,
    Connection,
    MessageFilter,
    MessageQueue,
    QueueRange,
    RemoteAdmin,
    RemoteSink,
    RemoteSource,
    SinkBatch,
    Store,
    decode_slices,
)
from pyrocket.base.versions import RELEASE
from pyrocket.values.lookup import LookupRequest
from pyrocket.wire.descriptors import service

FOLDER = Path(__file__).with_name("wire")
SERVICE = "pyrocket.v1.Broker"
STREAMS = {each.name for each in service(SERVICE).methods if each.server_streaming}
TAKES_STREAMS = {each.name for each in service(SERVICE).methods if each.client_streaming}


def session(address):
    """Make nearly every call of a client, and return the results."""
    client = Client(Connection(address))
    source, sink, admin = RemoteSource(client), RemoteSink(client), RemoteAdmin(client)
    seen = {"broker": source.hello.broker, "capabilities": sorted(source.hello.capabilities)}
    sink.prepare("t", queues=1)
    rows = pa.record_batch({"body": [b"a", b"b"], "tags": ["x", "y"], "keys": ["k", "l"]})
    seen["appended"] = sink.append(rows, topic="t").rows
    batch = SinkBatch(identity="query", target="t", batch=0, run="run")
    with sink.stage(batch, partition=0, attempt=0) as stager:
        stager.append(pa.record_batch({"body": [b"c"]}), topic="t")
        published = sink.publish(batch, [stager.finish()])
    seen["published"] = [published.rows, published.dropped]
    sink.flush()
    queue = MessageQueue("t", "broker-a", 0)
    every = QueueRange(queue, 0, 3)
    seen["topics"] = sorted(name for name in source.topics() if not name.isupper())
    bounds = source.bounds(["t"])[queue]
    seen["bounds"] = [bounds.minimum, bounds.maximum]
    seen["retired"] = len(source.retired(["t"]))
    seen["offsetsAt"] = source.offsets_at({queue: 0})[queue]
    seen["truncations"] = len(source.truncations({"broker-a": 1}, [queue]))
    seen["holds"] = source.holds(source.mark({queue: 3}))
    seen["sizes"] = source.sizes([every])[0].bytes
    seen["split"] = [list(each) for each in source.split_at_bytes([(every, [10_000])])[0]]
    seen["bodies"] = _bodies(source.slices([every]))
    seen["tagged"] = _bodies(source.slices([every], where=MessageFilter.parse(tags="y", sql="")))
    seen["joined"] = _bodies([source.joined_slice([every])])
    found = source.locate(LookupRequest(topics=["t"], keys=["k"], ids=[], begin_ms=0, end_ms=2**62))
    seen["found"] = [body for each in found.locations for body in _bodies(source.slices_at(each))]
    (part,) = source.plan_view("topics", topics=["t"])
    (view,) = source.read_view(part, ["topic", "messages"], verify_crc=False)
    seen["view"] = view.to_pylist()
    source.commit("g", {queue: 2})
    seen["committed"] = source.committed("g", ["t"])[queue]
    seen["groups"] = sorted(admin.groups())
    seen["retention"] = sink.retention is None
    client.close()
    return seen


def _bodies(slices):
    batches = decode_slices(iter(slices), ["body"])
    return [value.decode() for each in batches for value in each.column(0).to_pylist()]


@contextmanager
def answering(answer):
    """Serve a function that maps a call's name and requests to all replies, as bytes."""

    class Calls(grpc.GenericRpcHandler):
        def service(self, details):
            name = details.method.rpartition("/")[2]
            if name in STREAMS:
                return grpc.unary_stream_rpc_method_handler(
                    lambda sent, _: iter(answer(name, [sent]))
                )
            if name in TAKES_STREAMS:
                return grpc.stream_unary_rpc_method_handler(
                    lambda sent, _: answer(name, [*sent])[0]
                )
            return grpc.unary_unary_rpc_method_handler(lambda sent, _: answer(name, [sent])[0])

    server = grpc.server(ThreadPoolExecutor(4), handlers=(Calls(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def ask(channel, name, sent):
    """Make a call with requests as bytes, and return all replies as bytes."""
    path = f"/{SERVICE}/{name}"
    if name in STREAMS:
        return list(channel.unary_stream(path)(*sent, timeout=20))
    if name in TAKES_STREAMS:
        return [channel.stream_unary(path)(iter(sent), timeout=20)]
    return [channel.unary_unary(path)(*sent, timeout=20)]


def record():
    """Write the session of this release."""
    from support.broker import served

    calls = []
    with TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store", create=True)
        uuid = store.uuid
        with served(store) as address, grpc.insecure_channel(address) as channel:

            def forward(name, sent):
                replies = ask(channel, name, sent)
                calls.append(
                    [name, [each.hex() for each in sent], [each.hex() for each in replies]]
                )
                return replies

            with answering(forward) as between:
                seen = session(between)
    text = json.dumps({"store": uuid, "seen": seen, "calls": calls}, indent=1)
    (FOLDER / f"{RELEASE}.json").write_text(text + "\n")


if __name__ == "__main__":
    record()
