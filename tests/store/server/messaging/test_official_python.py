"""RocketMQ's own Python client, unmodified, with a broker process."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyrocket import Store
from support import broker_process
from support.certificates import write_certificate
from support.rocketmq_python import DELAYED, TOPIC, result, start
from support.users import secret_of, write_users

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None, reason="needs rocketmq-python-client"
)
CHECKS = ("--transaction-timeout", "500ms", "--transaction-check-interval", "1s")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store"
    with Store.open(path, create=True) as store:
        for topic in (TOPIC, DELAYED):
            store.topics.create(topic)
        store.groups.create("fifo")
        store.groups.update("fifo", fifo=True, retry_max_times=1)
    return path


def read(path, topic):
    with Store.open(path, read_only=True) as store:
        return list(store.messages(topic))


def eventually(path, topic):
    end = time.monotonic() + 20
    while not (found := read(path, topic)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_producers_and_consumers_of_the_python_client_work(path, tmp_path):
    with broker_process.running(path, *CHECKS) as (_, found):
        (endpoint,) = found.listen
        sent = result(start("send", endpoint, tmp_path))
        assert sent["checked"] == [sent["check"]]
        assert sent["recalled again"] == "NotFoundException"
        stored = read(path, TOPIC)
        normal = next(one for one in stored if one.body == b"normal")
        assert (normal.tags, normal.keys, normal.properties["color"]) == ("a", ("k",), "blue")
        assert normal.properties["UNIQ_KEY"] == sent["normal"]
        bodies = ["normal", "fifo-0", "fifo-1", "fifo-2", "commit", "check"]
        assert sorted(one.body.decode() for one in stored) == sorted(bodies)
        assert [one.body for one in eventually(path, DELAYED)] == [b"later"]
        programs = {
            "simple": start("receive", endpoint, tmp_path, count=8),
            "push": start("push", endpoint, tmp_path, group="push", count=8, failures=1),
            "fifo": start("push", endpoint, tmp_path, group="fifo", count=8, failures=9),
        }
        send_failing(endpoint, tmp_path)
        seen = {name: result(process) for name, process in programs.items()}
    for each in seen.values():
        assert {body for body, _ in each} >= set(bodies)
    assert max(attempt for _, attempt in seen["simple"]) == 2
    assert [attempt for body, attempt in seen["push"] if body == "fail"] == [1, 2]
    in_order = [body for body, _ in seen["fifo"] if body.startswith("fifo")]
    assert in_order == ["fifo-0", "fifo-1", "fifo-2"]
    assert [one.body for one in read(path, "%DLQ%fifo")] == [b"fail"]


def send_failing(endpoint, home):
    from support.rocketmq_stub import Stub

    stub = Stub(endpoint)
    stub.send(b"fail", topic=TOPIC, message_group="other")
    stub.close()


def test_the_python_client_uses_tls_and_credentials(path, tmp_path):
    pem, key = write_certificate(tmp_path)
    users = write_users(tmp_path, owner=("publish subscribe", "orders", "*"))
    security = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
    with broker_process.running(path, *security) as (_, found):
        (endpoint,) = found.listen
        environment = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(pem)}
        owner = {"user": "owner", "secret": secret_of("owner"), "tls": True}
        programs = [
            start("exchange", endpoint, tmp_path, environment, **owner),
            start("refused", endpoint, tmp_path, environment, **{**owner, "secret": "wrong"}),
        ]
        assert result(programs[0]) == ["hello"]
        assert result(programs[1])


def test_the_documented_example_of_the_python_client_works(path, tmp_path):
    page = Path(__file__).parents[4] / "store" / "BROKER.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (example,) = (
        block for block in blocks if "import rocketmq" in block or "from rocketmq" in block
    )
    with broker_process.running(path) as (_, found):
        code = example.replace("127.0.0.1:8081", found.listen[0]) + "import os\nos._exit(0)\n"
        environment = {**os.environ, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'one'\n", done.stderr
    assert [one.body for one in read(path, TOPIC)] == [b"one"]
