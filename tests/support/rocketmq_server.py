"""A server of the fake RocketMQ cluster: connections, answers, and faults that a test chooses."""

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any

from pyrocket.remoting.frame_reader import FrameReader
from pyrocket.remoting.frames import FrameError

from support.rocketmq_frames import binary_frame, json_frame, signature


class RefusedError(Exception):
    """An answer with a code and a remark."""

    def __init__(self, code, remark):
        super().__init__(code, remark)
        self.code, self.remark = code, remark


@dataclass
class Fault:
    """What happens to the next `count` requests with this code, or with any code.

    Attributes:
        action: `cut` closes the connection before the request has an effect, `lose` after it;
            `half` closes it in the middle of the answer; `silence` never answers; `garbage` answers
            with other bytes; a RefusedError is the answer; a number replaces its code.
    """

    action: str | int | RefusedError
    code: int | None = None
    count: int = 1


@dataclass
class FakeServer:
    """One server with one port, which stays the same when it is killed and started again.

    Attributes:
        delay_s: How long each answer takes.
        delays: If set, yields how long the next answer takes.
        requests: All requests, in the order of their arrival.
    """

    cluster: Any
    port: int = 0
    delay_s: float = 0.0
    delays: Any = None
    faults: list[Fault] = field(default_factory=list)
    requests: list = field(default_factory=list)
    connections: set = field(default_factory=set)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def codes(self):
        """Return the codes of all requests so far."""
        return [request.code for request in self.requests]

    def reset(self):
        """Answer at once and without faults."""
        self.delay_s, self.delays = 0.0, None
        self.faults.clear()
        self.requests.clear()

    def start(self):
        self.cluster.run(self._start())

    async def _start(self):
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(
            self._serve, sock=listening, ssl=self.cluster.ssl, limit=1 << 20
        )

    def kill(self):
        self.cluster.run(self._kill())

    async def _kill(self):
        self._server.close()
        for writer in self.connections:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        frames, answers = FrameReader(), set()
        self.connections.add(writer)
        try:
            while data := await reader.read(1 << 20):
                while data:
                    room = frames.room()
                    size = min(len(room), len(data))
                    room[:size], data = data[:size], data[size:]
                    for request in frames.received(size):
                        answers.add(asyncio.ensure_future(self._answer(request, writer)))
        except (ConnectionError, FrameError):
            pass  # As Java does, which closes the connection without an answer.
        finally:
            for answer in answers:
                answer.cancel()
            self.connections.discard(writer)
            writer.transport.abort()

    async def _answer(self, request, writer):
        """Answer a request, and count flights: a request that comes while another one waits is in
        the same flight.
        """
        cluster = self.cluster
        self.requests.append(request)
        cluster.flights += not cluster.waiting
        cluster.waiting += 1
        try:
            await asyncio.sleep(next(self.delays) if self.delays else self.delay_s)
            await self._apply(self._fault(request), request, writer)
        finally:
            cluster.waiting -= 1

    def _fault(self, request):
        found = next((one for one in self.faults if one.code in (None, request.code)), None)
        if found is None:
            return None
        found.count -= 1
        if not found.count:
            self.faults.remove(found)
        return found.action

    async def _apply(self, action, request, writer):
        if action == "silence":
            return
        if action == "cut":
            writer.transport.abort()
            return
        answer = self._checked(request, action)
        if answer is None:
            return
        code, fields, body, remark = answer
        code = action if isinstance(action, int) else code
        version = 513 if self.cluster.is_5 else 409
        encode = binary_frame if self.cluster.binary_headers else json_frame
        data = encode(code, request.opaque, fields, body, remark, version=version)
        if action == "garbage":
            data = b"\x00\x00\x00\x20" + bytes(range(200, 232))
        writer.write(
            data[: len(data) // 2] if action == "half" else data if action != "lose" else b""
        )
        await writer.drain()
        if action in ("half", "lose"):
            writer.close()

    def _checked(self, request, action):
        """Return code, fields, body and remark of the answer; None for no answer."""
        try:
            if isinstance(action, RefusedError):
                raise action
            self._authenticate(request)
            return self.answer(request)
        except RefusedError as refusal:
            return refusal.code, None, b"", refusal.remark

    def _authenticate(self, request):
        users, given = self.cluster.users, request.fields
        if not users:
            return
        secret = users.get(given.get("AccessKey"))
        if secret is None or signature(secret, given, request.body) != given.get("Signature"):
            text = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
            raise (
                RefusedError(16, "check signature failed.")
                if self.cluster.is_5
                else RefusedError(1, text)
            )

    def answer(self, request):
        raise NotImplementedError
