"""Consumers lose no message when members, brokers and name servers are killed."""

import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyrocket import Store, StoreConfig
from support import broker_process, name_server
from support.client_processes import GROUP, TOPIC, consumed, lines, start, stop
from support.name_server import wait_until

pytestmark = pytest.mark.crash
SIZES = pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.heavy)])
BATCH = 20


def new_store(path, name="broker-a"):
    with Store.open(path, create=True, config=StoreConfig(broker_name=name)) as store:
        store.topics.create(TOPIC, read_queues=8, write_queues=8)
        store.groups.create(GROUP)
    return path


@contextmanager
def processes():
    """Yield a function that starts a process; kill all that still run at the end."""
    running = []

    def begin(*arguments, **options):
        running.append(start(*arguments, **options))
        return running[-1]

    try:
        yield begin
    finally:
        for process in running:
            process.kill()
            process.wait(30)


def wait_for_all(sent, files, seconds=240):
    """Wait until every acknowledged message was consumed, and print the counts."""
    wanted = {*lines(sent)}
    wait_until(lambda: wanted <= consumed(files).keys(), seconds)
    found = consumed(files)
    repeated = sum(found.values()) - len(found)
    each = ", ".join(f"{file.name} {len(lines(file))}" for file in files)
    sys.stdout.write(
        f"{len(wanted)} acknowledged, {len(found)} consumed, {repeated} again: {each}\n"
    )


@pytest.mark.parametrize(
    ("count", "orderly"),
    [
        (3000, False),
        pytest.param(100_000, False, marks=pytest.mark.heavy),
        # The queues of the killed member are locked for a minute.
        pytest.param(100_000, True, marks=pytest.mark.heavy),
    ],
)
def test_a_killed_member_an_added_one_and_a_restarted_broker_lose_no_message(
    tmp_path, count, orderly
):
    path, sent = new_store(tmp_path / "store"), tmp_path / "sent"
    files = [tmp_path / f"consumer-{number}" for number in range(4)]
    options = {"orderly": orderly, "consume_message_batch_max_size": 8}
    with ExitStack() as stack:
        begin = stack.enter_context(processes())
        broker, found = stack.enter_context(broker_process.running(path))
        (address,) = found.listen
        members = [begin("consume", address, file, **options) for file in files[:3]]
        producer = begin("produce", address, sent, count=count, batch=BATCH)
        wait_until(lambda: len(lines(sent)) >= count // 3, 240)
        members[0].kill()
        members.append(begin("consume", address, files[3], **options))
        wait_until(Path(f"{files[3]}.started").exists)
        wait_until(lambda: len(lines(sent)) >= count * 2 // 3, 240)
        broker.kill()
        broker.wait(30)
        with broker_process.running(path, "--listen", address):
            assert producer.wait(240) == 0
            wait_for_all(sent, files)
            wait_until(lambda: everything_is_committed(path), 120)
            for member in members[1:]:
                stop(member)
    if orderly:
        check_order(files)
    assert everything_is_committed(path)


def everything_is_committed(path):
    """Whether the committed offsets of the group are the ends of the queues."""
    with Store.open(path, read_only=True) as store:
        ends = {number: store.max_offset(TOPIC, number) for number in range(8)}
        return store.groups.committed(GROUP, TOPIC) == ends


def check_order(files):
    """Check that no member got a message of a queue before an earlier one that it got, too."""
    for file in files:
        seen, newest = set(), {}
        for line in lines(file):
            queue, body = line.split()
            assert line in seen or int(body) > newest.get(queue, -1), (file.name, line)
            seen.add(line)
            newest[queue] = max(newest.get(queue, -1), int(body))


@SIZES
def test_a_killed_name_server_and_a_killed_broker_lose_no_message(tmp_path, count):
    sent, files = tmp_path / "sent", [tmp_path / f"consumer-{number}" for number in range(2)]
    with ExitStack() as stack:
        begin = stack.enter_context(processes())
        servers = [stack.enter_context(name_server.running()) for _ in range(2)]
        endpoint = ",".join(address for _, address in servers)
        brokers = {}
        for name in ("broker-a", "broker-b"):
            path = new_store(tmp_path / name, name)
            running = broker_process.running(path, "--nameserver", endpoint)
            brokers[name] = stack.enter_context(running)
        for file in files:
            begin("consume", endpoint, file)
        producer = begin("produce", endpoint, sent, count=count, batch=BATCH)
        wait_until(lambda: len(lines(sent)) >= count // 3, 240)
        servers[0][0].kill()
        broker, found = brokers["broker-a"]
        broker.kill()
        broker.wait(30)
        time.sleep(1)
        again = ["--listen", found.listen[0], "--nameserver", endpoint]
        with broker_process.running(tmp_path / "broker-a", *again):
            assert producer.wait(240) == 0
            wait_for_all(sent, files)
    both = [bodies(tmp_path / name) for name in ("broker-a", "broker-b")]
    assert all(both), "each broker has messages"


def bodies(path):
    with Store.open(path, read_only=True) as store:
        return sum(one.maximum for one in store.offsets(TOPIC).values())
