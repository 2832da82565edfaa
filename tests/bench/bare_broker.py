"""A broker that sends prebuilt blocks, to measure the cost of gRPC and the client alone.

python -m bench.bare_broker DIR     prints the address, and serves a store until it is killed

The broker keeps the blocks of its first reply to each request, and sends them again if the request
is repeated.
"""

import asyncio
import sys

from pyrocket import Store
from pyrocket.broker.broker import Broker
from pyrocket.server.server import Server


class BareServer(Server):
    def __init__(self, broker):
        super().__init__(broker)
        self._kept = {}

    async def _replies(self, call, request, context):
        if call.name != "Slices":
            return await super()._replies(call, request, context)
        if request not in self._kept:
            self._kept[request] = [*call.answer(**call.arguments(request))]
        for block in self._kept[request]:
            await context.write(block)
        return None


async def serve(path):
    server = BareServer(Broker(Store.open(path)))
    port = server.listen("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
