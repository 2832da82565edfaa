"""No file that a broker writes stops its start, except one with data, which the error names."""

import shutil

import pytest
from pyrocket import Message, SinkBatch, Store
from pyrocket.base.versions import HINTS, VERSIONS
from pyrocket.broker.broker import Broker
from pyrocket.disk.io import MAX_FILE_BYTES, replace_file
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.values.message import MessageQueue
from support.stores import BY_HAND

DATA = (
    "group_starts.json",
    "role.json",
    "store.json",
    "topics.json",
    "epochs.json",
    "cursors.json",
    "retention.json",
    "sink.json",
)
HINT_PATHS = {"empty.json": f"sink/{'0' * 32}", "unclean.json": "sink/unclean.json"}
OTHER = ("pop.json", "keys", "timers/tally", "state")
"""Files whose loss costs time: messages are received again, or the file is rebuilt."""

LOSABLE = sorted({*(HINT_PATHS.get(name, name) for name in HINTS), *OTHER})


def huge(path):
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


DAMAGE = {
    "bytes": lambda path: path.write_bytes(b"\xff\x00\x01 not JSON" * 100),
    "deep": lambda path: path.write_bytes(b"[" * 200_000),
    "object": lambda path: path.write_text('{"locks": 5, "next": {}, "groups": 1, "queues": []}'),
    "huge": huge,
}


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A closed store whose broker has been used for everything that writes a file."""
    path = tmp_path_factory.mktemp("used") / "store"
    with Store.open(path, create=True, config=BY_HAND) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        store.groups.create("billing")
    broker = Broker(Store.open(path))
    queue = MessageQueue("orders", broker.store.broker_name, 0)
    broker.consumers.lock("billing", "c1", [queue])
    broker.store.append(Message(topic="orders", body=b"1", queue_id=0))
    broker.store.append(Message(topic="orders", body=b"later", queue_id=0, delay_level=5))
    broker.pop.receive("billing", "orders")
    broker.close()
    return path


@pytest.fixture
def root(used, tmp_path):
    return shutil.copytree(used, tmp_path / "store")


def damage(root, name, kind):
    path = root / "pyrocket" / name
    path.parent.mkdir(exist_ok=True)
    DAMAGE[kind](path)
    return path


def start(root):
    """Start a broker on a store, use its files, and stop it."""
    broker = Broker(Store.open(root))
    try:
        broker.hello()
        broker.pop.receive("billing", "orders")
        broker.consumers.group_starts("billing")
        queue = MessageQueue("orders", broker.store.broker_name, 1)
        broker.consumers.lock("billing", "c2", [queue])
        broker.store.sink.publish(SinkBatch(identity="q", target="", batch=0), [])
    finally:
        broker.close()


def test_every_file_with_a_version_is_tested():
    assert {*DATA, *HINTS, *OTHER} >= VERSIONS.keys()


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", LOSABLE)
def test_a_file_that_costs_only_time_does_not_stop_a_broker(root, name, kind):
    damage(root, name, kind)
    start(root)


@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind != "object"])
@pytest.mark.parametrize("name", DATA)
def test_a_file_with_data_refuses_by_its_name(root, name, kind):
    path = damage(root, name, kind)
    with pytest.raises(StoreDamagedError) as refused:
        start(root)
    assert str(path) in str(refused.value)


def test_a_file_that_could_not_be_read_again_is_not_written(tmp_path):
    path = tmp_path / "topics.json"
    replace_file(path, b"before", tmp_path / "tmp")
    with pytest.raises(StoreUnavailableError, match="STORE_FILE_FULL"):
        replace_file(path, bytes(MAX_FILE_BYTES + 1), tmp_path / "tmp", backup=True)
    assert path.read_bytes() == b"before"
