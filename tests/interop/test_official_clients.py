"""RocketMQ's own Java and Go clients of the gRPC protocol, unmodified, with a broker process.

The Python and Node.js clients are tested in `tests/store/server/messaging`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
from interop.conftest import HERE
from interop.maven import UnavailableError, call, fetch
from pyrocket import Message, Store
from support import broker_process
from support.certificates import write_certificate
from support.users import secret_of, write_users

GO_CLIENT = "github.com/apache/rocketmq-clients/golang/v5@v5.1.4"
SENDS, IN_FLIGHT = 10_000, 256
MESSAGES, KEYS = 6_000, 50


def java(folder):
    """Return the command that runs the Java client."""
    fetch(HERE / "clients" / "pom.xml", folder / "jars")
    # The client writes its log into the user's home.
    options = [f"-Duser.home={folder}", "-Xmx512m", "-cp", (folder / "jars").read_text().strip()]
    return ["java", *options, HERE / "clients" / "Client.java"]


def go(folder):
    """Return the command that runs the Go client."""
    if shutil.which("go") is None:
        raise UnavailableError("go is not installed")
    shutil.copy(HERE / "clients" / "client.go", folder)
    for command in (["mod", "init", "client"], ["get", GO_CLIENT], ["build", "-o", "client", "."]):
        call("go", *command, cwd=folder)
    return [folder / "client"]


@pytest.fixture(scope="module", params=[java, go])
def client(request, tmp_path_factory):
    """Runs a client with an address, credentials and a command, and returns its result."""
    folder = tmp_path_factory.mktemp("client")
    try:
        program = request.param(folder)
    except UnavailableError as error:
        pytest.skip(f"the client is not available: {error}")

    def run(address, *command, user="", secret=""):
        done = subprocess.run(
            [*program, address, user, secret, *map(str, command)],
            env={**os.environ, "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS and credentials"])
def test_producers_and_consumers_work(client, tmp_path, secure):
    path, options, credentials = tmp_path / "store", (), {}
    if secure:
        pem, key = write_certificate(tmp_path)
        users = write_users(tmp_path, owner=("publish subscribe", "*", "*"))
        options = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
        credentials = {"user": "owner", "secret": secret_of("owner")}
    with Store.open(path, create=True) as store:
        for topic in ("orders", "other"):
            store.topics.create(topic)
        for group in ("simple", "standard", "fifo"):
            store.groups.create(group)
        store.groups.update("fifo", fifo=True)
    checks = ("--transaction-timeout", "500ms", "--transaction-check-interval", "1s")
    with broker_process.running(path, *checks, *options) as (_, found):
        seen = client(found.listen[0], "all", **credentials)
    assert seen["sent"] == {"sameId": True, "recalled": True, "checked": 1}
    bodies = ["check", "commit", "fifo-0", "fifo-1", "fifo-2", "later", "normal"]
    assert sorted(seen["simple"]) == bodies
    for group in ("standard", "fifo"):
        assert sorted({body for body, *_ in seen[group]}) == bodies
        assert [attempt for body, attempt, _ in seen[group] if body == "normal"] == [1, 2]
    in_order = [body for body, *_ in seen["fifo"] if body.startswith("fifo")]
    assert in_order == ["fifo-0", "fifo-1", "fifo-2"]


def test_hundreds_of_sends_in_flight_are_stored(client, tmp_path):
    """A send that fails is repeated, so its message may be stored twice."""
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("t")
    with broker_process.running(tmp_path / "store") as (_, found):
        sent = client(found.listen[0], "burst", "t", SENDS, IN_FLIGHT)
    with Store.open(tmp_path / "store", read_only=True) as store:
        stored = Counter(one.body.decode() for one in store.messages("t"))
    assert stored.keys() == {str(number) for number in range(SENDS)}
    assert stored.total() - SENDS <= sum(sent["errors"].values())
    sys.stdout.write(f"{sent['errors']} errors, {stored.total() - SENDS} repeated\n")


def test_a_fifo_group_is_as_fast_over_hundreds_of_queues_as_over_a_few(client, tmp_path):
    seconds = {}
    for queues in (8, 256):
        path = tmp_path / str(queues)
        with Store.open(path, create=True) as store:
            store.topics.create("t", read_queues=queues, write_queues=queues)
            store.groups.create("g")
            store.groups.update("g", fifo=True)
            for number in range(MESSAGES):
                body = f"{number % KEYS} {number}".encode()
                store.append(Message(topic="t", body=body, sharding_key=f"key {number % KEYS}"))
        with broker_process.running(path) as (_, found):
            seen = client(found.listen[0], "push", "g", "t", MESSAGES)
        check_order(seen)
        seconds[queues] = seen[-1][2] - seen[0][2]
    sys.stdout.write(f"seconds by number of queues: {seconds}\n")
    assert seconds[256] < 1.5 * seconds[8]


def check_order(seen):
    of_key = defaultdict(list)
    for body, attempt, _ in seen:
        key, number = body.split()
        assert attempt == 1
        of_key[key].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in of_key.values())
    assert sum(map(len, of_key.values())) == MESSAGES
