"""RocketMQ's own Node.js client, unmodified, with a broker process."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pyrocket import Store
from support import broker_process
from support.certificates import write_certificate

PACKAGE = "rocketmq-client-nodejs@1.0.8"
PROGRAM = Path(__file__).parents[3] / "support" / "rocketmq_node.js"
USERS = """
[users.owner]
secret = "a secret of the owner"
[[rules]]
users = ["owner"]
topics = ["*"]
groups = ["*"]
allow = ["publish", "subscribe"]
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js and npm"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the client."""
    folder = tmp_path_factory.mktemp("packages")
    install = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(params=["plaintext", "TLS and credentials"])
def security(request, tmp_path):
    """The options of the broker, the credentials of the client, and its environment."""
    if request.param == "plaintext":
        return (), (), {}
    pem, key = write_certificate(tmp_path)
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text(USERS)
    options = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
    trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(pem)}
    return options, ("owner", "a secret of the owner"), trusted


def test_producers_and_consumers_of_the_nodejs_client_work(tmp_path, packages, security):
    """A client with two topics may miss its settings, so the broker sends them again."""
    options, credentials, environment = security
    path = tmp_path / "store"
    with Store.open(path, create=True) as store:
        store.topics.create("orders")
        store.topics.create("other")
        store.groups.create("fifo")
        store.groups.update("fifo", fifo=True)
    checks = ("--transaction-timeout", "500ms", "--transaction-check-interval", "1s")
    with broker_process.running(path, *checks, *options) as (_, found):
        done = subprocess.run(
            ["node", PROGRAM, packages, found.listen[0], *credentials],
            env={**os.environ, **environment},
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
