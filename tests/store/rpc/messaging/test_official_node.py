"""RocketMQ's own Node.js client, unmodified, with a broker process."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from pyrocket import Store
from support import broker_process

PACKAGE = "rocketmq-client-nodejs@1.0.8"
PROGRAM = Path(__file__).parents[3] / "support" / "rocketmq_node.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js and npm"),
]


def test_producers_and_consumers_of_the_nodejs_client_work(tmp_path):
    """A client with two topics may miss its settings, so the broker sends them again."""
    install = ["npm", "install", "--prefix", tmp_path, "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    path = tmp_path / "store"
    with Store.open(path, create=True) as store:
        store.topics.create("orders")
        store.topics.create("other")
        store.groups.create("fifo")
        store.groups.update("fifo", fifo=True)
    checks = ("--transaction-timeout", "500ms", "--transaction-check-interval", "1s")
    with broker_process.running(path, *checks) as (_, found):
        done = subprocess.run(
            ["node", PROGRAM, tmp_path, found.listen[0]],
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["sent"] == {"sameId": True, "recalled": True, "checked": 1}
    bodies = ["check", "commit", "fifo-0", "fifo-1", "fifo-2", "later", "normal"]
    assert sorted(seen["simple"]) == bodies
    for group in ("standard", "fifo"):
        assert sorted({body for body, _ in seen[group]}) == bodies
        assert [attempt for body, attempt in seen[group] if body == "normal"] == [1, 2]
        in_order = [body for body, _ in seen[group] if body.startswith("fifo")]
        assert in_order == ["fifo-0", "fifo-1", "fifo-2"]
