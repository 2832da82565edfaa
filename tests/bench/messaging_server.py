"""A server of RocketMQ's gRPC protocol in a process of its own, to measure single calls.

python -m bench.messaging_server DIR FLUSH     serves the store in DIR; an fsync takes 2 ms
python -m bench.messaging_server               replies to sends and does nothing else

The process prints its address and the number of its fsyncs at the start. For each line of input, it
prints the number of fsyncs again.
"""

import asyncio
import sys

import grpc
import grpc.aio
from bench.test_group_commit import CountedFsync
from pyrocket import Store, StoreConfig
from pyrocket.broker.broker import Broker
from pyrocket.disk import io
from pyrocket.server.messaging.interface import SERVICE, new, number
from pyrocket.server.server import Server


def bare_server():
    """Return a server whose handler of sends does nothing, and its port."""
    ok = {"code": number("Code", "OK")}
    reply = new("SendMessageResponse", status=ok, entries=[{"status": ok}]).SerializeToString()

    async def send(request, context):
        return reply

    server = grpc.aio.server()
    handlers = {"SendMessage": grpc.unary_unary_rpc_method_handler(send)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server, server.add_insecure_port("127.0.0.1:0")


async def serve(path=None, flush=None):
    io.sync = CountedFsync()
    if path:
        server = Server(Broker(Store.open(path, config=StoreConfig(flush=flush))))
        port = server.listen("127.0.0.1:0")
    else:
        server, port = bare_server()
    await server.start()
    report(f"127.0.0.1:{port}", io.sync.count)
    while await asyncio.to_thread(sys.stdin.readline):
        report(io.sync.count)


def report(*values):
    sys.stdout.write(" ".join(map(str, values)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
