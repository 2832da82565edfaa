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
from support.shares import share
from support.users import secret_of, write_users

NAME = "rocketmq-client-nodejs"
PACKAGE = f"{NAME}@1.0.8"
SOURCES = os.environ.get(
    "PYROCKET_ROCKETMQ_CLIENTS", "https://github.com/apache/rocketmq-clients.git"
)
PROGRAM = Path(__file__).parents[3] / "support" / "rocketmq_node.js"
pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js and npm")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the client."""
    folder = tmp_path_factory.mktemp("packages")
    install = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(params=share(["TLS and credentials", "plaintext"], 1))
def security(request, tmp_path):
    """The options of the broker, the credentials of the client, and its environment."""
    if request.param == "plaintext":
        return (), (), {}
    pem, key = write_certificate(tmp_path)
    users = write_users(tmp_path, owner=("publish subscribe", "*", "*"))
    options = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
    trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(pem)}
    return options, ("owner", secret_of("owner")), trusted


@pytest.mark.slow
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


@pytest.fixture
def live_tests(tmp_path, packages):
    """A checkout of the client's source with its tests, and the generated files of the package."""
    clone = ["git", "clone", "--quiet", "--depth", "1", SOURCES, tmp_path / "clients"]
    if subprocess.run(clone, check=False, capture_output=True, timeout=300).returncode:
        pytest.skip(f"cannot clone {SOURCES}")
    folder, package = tmp_path / "clients" / "nodejs", packages / "node_modules" / NAME
    shutil.copytree(package / "proto", folder / "proto", dirs_exist_ok=True)
    shutil.copytree(package / "src", folder / "src", dirs_exist_ok=True)
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, check=True, capture_output=True, timeout=600, cwd=folder)
    return folder


@pytest.mark.interop
def test_the_live_tests_of_the_nodejs_client_pass(tmp_path, live_tests):
    """One of the ten tests fails with every server: the client reports another error than the test
    of a missing topic expects.
    """
    types = ("Normal", "Fifo", "Delay", "Transaction")
    with Store.open(tmp_path / "store", create=True) as store:
        for kind in types:
            store.topics.create(f"TopicTestFor{kind}")
            store.topics.set_message_type(f"TopicTestFor{kind}", kind.upper())
    files = ("test/producer/Producer.test.ts", "test/consumer/SimpleConsumer.test.ts")
    with broker_process.running(tmp_path / "store") as (_, found):
        done = subprocess.run(
            ["npx", "egg-bin", "test", *files, "--timeout", "60000"],
            env={**os.environ, "ROCKETMQ_NODEJS_CLIENT_ENDPOINTS": found.listen[0]},
            cwd=live_tests,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert "9 passing" in done.stdout, done.stdout + done.stderr
    assert "1 failing" in done.stdout
    assert "1) should startup fail when topic not exists" in done.stdout
