"""What clients can hold at most in a broker: each test is a row of the table in SECURITY.md.

A test attacks a broker process with the default settings, while another client sends messages. It
measures the memory of the process during the attack and after it, and restarts the broker.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.base.credentials import sign
from pyrocket.server.messaging.interface import SERVICE, new
from pyrocket.values.message import MessageQueue, QueueRange
from pyrocket.wire.channel import method_of
from pyrocket.wire.messages import fill
from support.broker_process import running
from support.raw_http2 import RawConnection, announced
from support.rocketmq_stub import message, queue, resource
from support.users import ADMIN, secret_of, write_users

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory")

MIB = 1 << 20
REQUEST = 16 * MIB
CONNECTION_MIB, TOTAL_MIB = 64, 256
SLACK_MIB = 64
"""What the process needs for anything else: calls, threads, free memory that is not returned."""

COUNT = count()


def resident_mib(process):
    """Return the resident memory of a process, without the files that it maps."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) >> 10


def sealed(data):
    return announced(len(data)) + data


def request_of(call, of="pyrocket.v1.Broker", **fields):
    method, request, _ = method_of(call, of)
    return method, sealed(fill(request(), fields).SerializeToString())


def v2(call, **fields):
    return f"/{SERVICE}/{call}", sealed(new(f"{call}Request", **fields).SerializeToString())


class Attack:
    """The clients of a test: `streams` at a time on each of some connections, until `stop`."""

    def __init__(self, address, connections, streams, metadata, window=1 << 30):
        self._open = [RawConnection(address, window) for _ in range(connections)]
        self._streams, self._metadata = streams, metadata
        self._stopping = threading.Event()
        self._threads = []

    def run(self, method, data, *, ends=False, follow=b""):
        """Make calls that send this data, and open another one for each call that ends.

        `follow` is sent when a reply has begun.
        """
        for one in self._open:
            thread = threading.Thread(target=self._attack, args=(one, method, data, ends, follow))
            thread.start()
            self._threads.append(thread)

    def _attack(self, connection, method, data, ends, follow):
        running = set()
        while not self._stopping.is_set() and not connection.is_closed:
            running -= connection.ended
            if len(running) >= self._streams:
                time.sleep(0.05)
                continue
            client = ("x-mq-client-id", f"c{next(COUNT)}")
            number = connection.open(method, (client, *self._metadata()))
            running.add(number)
            connection.send(number, data, ends=ends, timeout=0.05)
            if follow:
                connection.wait_for_reply(number)
                connection.send(number, follow, timeout=0.05)

    def stop(self):
        self._stopping.set()
        for one in self._open:
            one.close()
        for thread in self._threads:
            thread.join(20)


class Sender:
    """A process that sends messages until `stop`."""

    def __init__(self, address, credentials):
        tests = str(Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.sending_process", address, *credentials],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], tests])},
        )
        self._process.stdout.readline()
        self.codes, self.took_s = [], []

    def stop(self):
        if self._process.poll() is None:
            found = json.loads(self._process.communicate(timeout=60)[0])
            self.codes, self.took_s = found["codes"], found["took_s"]


class Place:
    """A broker that is attacked: with or without users, for some seconds."""

    def __init__(self, path, connections, seconds, *, users, flags=()):
        self.path, self.connections, self._seconds = path, connections, seconds
        self._flags = flags
        self.attacker, self._owner = lambda: (), ()
        if users:
            self._flags += ("--users", write_users(path.parent, owner=ADMIN, other=ADMIN))
            self.attacker = lambda: sign("other", secret_of("other"))
            self._owner = ("owner", secret_of("owner"))

    def prepare(self):
        """Create the store, with 30 MB of messages of a megabyte each."""
        with Store.open(self.path, create=True) as store:
            for name in ("t", "sent"):
                store.topics.create(name, read_queues=1, write_queues=1)
            store.groups.create("g")
            body = pa.array([os.urandom(10**6)] * 30, pa.binary())
            store.append_batch(pa.record_batch({"body": body}), topic="t")

    @contextmanager
    def attacked(self, most_mib, streams=100, window=1 << 30, metadata=None):
        """Yield the attack of a `with` block; then check what the broker holds.

        most_mib: How much more memory the process may have during the attack.
        """
        self.prepare()
        with running(self.path, *self._flags) as (process, found):
            before, during = resident_mib(process), []
            metadata = self.attacker if metadata is None else metadata
            attack = Attack(found.listen[0], self.connections, streams, metadata, window)
            with ExitStack() as stopping:
                stopping.callback(attack.stop)
                yield attack
                sender = Sender(found.listen[0], self._owner)
                stopping.callback(sender.stop)
                end = time.monotonic() + self._seconds
                while time.monotonic() < end:
                    during.append(resident_mib(process))
                    time.sleep(0.1)
                sender.stop()
                attack.stop()
                after = self._after(process, before)
            median_s = statistics.median(sender.took_s)
            sys.stdout.write(
                f"{self.connections} connections: {before} MiB, at most {max(during)} MiB, then"
                f" {after} MiB; {len(sender.took_s)} sends, median {1000 * median_s:.0f} ms\n"
            )
            assert max(during) <= before + most_mib + SLACK_MIB
            assert after <= before + 64
            assert sender.codes == ["OK"]
            assert median_s < 1
        with running(self.path, *self._flags):
            pass

    def _after(self, process, before):
        """Return the memory 10 s after the attack, or less as soon as it has fallen enough."""
        end = time.monotonic() + 10
        while resident_mib(process) > before + 64 and time.monotonic() < end:
            time.sleep(0.2)
        return resident_mib(process)

    def shared(self, of_connection=CONNECTION_MIB, in_total=TOTAL_MIB):
        """Return what these connections may hold together."""
        return min(self.connections * of_connection, in_total)


SIZES = [
    pytest.param((1, 1, False), id="quick"),
    *(
        pytest.param(
            (connections, float(os.environ.get("PYROCKET_ATTACK_S", "120")), users),
            id=f"{connections}-{'users' if users else 'none'}",
            marks=pytest.mark.heavy,
        )
        for connections in (1, 10)
        for users in (False, True)
    ),
]


@pytest.fixture(params=SIZES)
def place(request, tmp_path):
    connections, seconds, users = request.param
    return Place(tmp_path / "store", connections, seconds, users=users)


def test_requests_that_do_not_arrive_completely(place):
    with place.attacked(place.shared()) as attack:
        attack.run("/pyrocket.v1.Broker/Topics", announced(REQUEST) + bytes(REQUEST - 1))


def test_requests_without_credentials_are_not_received(tmp_path):
    place = Place(tmp_path / "store", 1, 1, users=True)
    with place.attacked(0, metadata=lambda: ()) as attack:
        attack.run("/pyrocket.v1.Broker/Topics", announced(REQUEST) + bytes(REQUEST - 1))


@pytest.mark.heavy
def test_health_watches_with_large_requests(place):
    junk = b"\x7a" + _varint(8 * MIB) + bytes(8 * MIB)
    with place.attacked(place.shared(), metadata=lambda: ()) as attack:
        attack.run("/grpc.health.v1.Health/Watch", sealed(junk), ends=True)


@pytest.mark.heavy
def test_requests_of_empty_values(place):
    method, _ = request_of("QueueBounds")
    with place.attacked(place.shared() + 256) as attack:
        attack.run(method, sealed(b"\x0a\x00" * (REQUEST // 2)), ends=True)


@pytest.mark.heavy
def test_requests_of_compressed_bodies(place):
    bomb = zlib.compress(bytes(100 * MIB))
    method, data = v2("SendMessage", messages=[message(bomb, body_encoding=2)] * 100)
    with place.attacked(place.shared() + 256, streams=20) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.slow
def test_streams_that_are_not_read(place):
    wanted = [QueueRange(MessageQueue("t", "broker-a", 0), 0, 30)]
    method, data = request_of("Slices", ranges=wanted)
    with place.attacked(place.shared(), streams=64, window=65_535) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.heavy
def test_the_memory_of_cancelled_streams_that_are_not_read_is_held(tmp_path):
    """gRPC keeps their replies until the connection ends, while new streams begin."""
    place = Place(tmp_path / "store", 4, 8, users=False, flags=("--stream-stalled", "500ms"))
    wanted = [QueueRange(MessageQueue("t", "broker-a", 0), 0, 30)]
    method, data = request_of("Slices", ranges=wanted)
    with place.attacked(place.shared(), streams=64, window=65_535) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.heavy
def test_receives_that_are_not_read(place):
    place_of = {"group": resource("g"), "message_queue": queue("t"), "batch_size": 32}
    method, data = v2("PullMessage", **place_of)
    with place.attacked(2 * place.shared(), streams=64, window=65_535) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.heavy
def test_replies_that_are_not_read(place):
    method, data = request_of(
        "PullQueue",
        "pyrocket.v1.Clients",
        group="g",
        queue=MessageQueue("t", "broker-a", 0),
        max_messages=32,
    )
    with place.attacked(2 * place.shared(), streams=100, window=65_535) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.heavy
def test_watches_with_large_requests(place):
    junk = b"\x7a" + _varint(8 * MIB) + bytes(8 * MIB)
    with place.attacked(place.shared() + 64 * place.connections, streams=900) as attack:
        attack.run("/pyrocket.v1.Broker/Watch", sealed(junk), ends=True)


@pytest.mark.heavy
def test_polls_that_wait(place):
    place_of = {"group": resource("g"), "message_queue": queue("sent"), "batch_size": 1}
    method, data = v2(
        "ReceiveMessage",
        **place_of,
        filter_expression={"type": 1, "expression": "never"},
        invisible_duration={"seconds": 60},
        long_polling_timeout={"seconds": 20},
    )
    # More at once would take longer than the attack until all of them wait.
    streams = 900 if place.connections == 1 else 100
    with place.attacked(64 * place.connections, streams=streams) as attack:
        attack.run(method, data, ends=True)


@pytest.mark.heavy
def test_telemetry_streams_whose_second_request_does_not_arrive_completely(place):
    settings = new("Settings", publishing={"topics": [resource("t")]})
    first = sealed(new("TelemetryCommand", settings=settings).SerializeToString())
    rest = announced(REQUEST) + bytes(REQUEST - 1)
    with place.attacked(4 * CONNECTION_MIB * place.connections) as attack:
        attack.run(f"/{SERVICE}/Telemetry", first, follow=rest)


def _varint(value):
    parts = []
    while value > 127:
        parts.append(value % 128 + 128)
        value //= 128
    return bytes([*parts, value])
