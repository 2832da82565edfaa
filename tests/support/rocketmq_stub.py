"""A plain client of `apache.rocketmq.v2` for handwritten requests."""

from contextlib import contextmanager

import grpc
from pyrocket.server.messaging.interface import PACKAGE, SERVICE, name_of, new, number
from pyrocket.wire.descriptors import message_class

STREAMS = ("ReceiveMessage", "PullMessage")
ENDPOINTS = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": 8081}]}


class Stub:
    """A client with its own id, on one channel."""

    def __init__(self, address, client_id="test@1@0@x", metadata=()):
        self.channel = grpc.insecure_channel(address)
        self.metadata = ((("x-mq-client-id", client_id),) if client_id else ()) + tuple(metadata)

    def call(self, name, **fields):
        """Return the reply, or all replies of a stream."""
        request = new(f"{name}Request", **fields).SerializeToString()
        kind = message_class(f"{PACKAGE}.{name}Response")
        path, more = f"/{SERVICE}/{name}", {"metadata": self.metadata, "timeout": 20}
        if name in STREAMS:
            return [*map(kind.FromString, self.channel.unary_stream(path)(request, **more))]
        return kind.FromString(self.channel.unary_unary(path)(request, **more))

    def code(self, name, **fields):
        """Return the name of a reply's code."""
        reply = self.call(name, **fields)
        return code_of(reply[0] if isinstance(reply, list) else reply)

    def send(self, *bodies, topic="t", **system):
        """Send messages that differ only in body and id."""
        return self.call(
            "SendMessage", messages=[message(body, topic, **system) for body in bodies]
        )

    @contextmanager
    def telemetry(self, **settings):
        """Open the stream with these settings; return an iterator of commands."""
        sent = iter([new("TelemetryCommand", settings=new("Settings", **settings))])
        stream = Requests(sent)
        replies = self.channel.stream_stream(f"/{SERVICE}/Telemetry")(
            stream, metadata=self.metadata, timeout=30
        )
        kind = message_class(f"{PACKAGE}.TelemetryCommand")
        try:
            yield map(kind.FromString, replies)
        finally:
            stream.close()
            replies.cancel()

    def close(self):
        self.channel.close()


class Requests:
    """Requests of a stream that stays open until `close`."""

    def __init__(self, first):
        import queue

        self._queue = queue.SimpleQueue()
        for one in first:
            self._queue.put(one.SerializeToString())

    def __iter__(self):
        return self

    def __next__(self):
        found = self._queue.get()
        if found is None:
            raise StopIteration
        return found

    def close(self):
        self._queue.put(None)


def code_of(reply):
    return name_of("Code", reply.status.code)


COUNT = iter(range(10**9))


def message(body=b"body", topic="t", properties=None, **system):
    """Return a message; `system` contains fields of SystemProperties, with times in
    milliseconds.
    """
    times = {name: system.pop(name) for name in [*system] if name.endswith(("_ms", "_duration_s"))}
    system.setdefault("message_id", f"01{next(COUNT):032X}")
    system.setdefault("message_type", number("MessageType", "NORMAL"))
    made = new(
        "Message",
        topic={"name": topic},
        body=body,
        user_properties=properties or {},
        system_properties=system,
    )
    if "deliver_ms" in times:
        made.system_properties.delivery_timestamp.FromMilliseconds(times["deliver_ms"])
    if "recovery_duration_s" in times:
        seconds = times["recovery_duration_s"]
        made.system_properties.orphaned_transaction_recovery_duration.FromSeconds(seconds)
    return made


def resource(name):
    return {"name": name}


def queue(topic="t", queue_id=0):
    return {"topic": {"name": topic}, "id": queue_id}
