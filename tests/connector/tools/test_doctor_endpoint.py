"""`pyrocket doctor --endpoint` tries each step of a call, and reports the one that fails."""

import pytest
from pyrocket import Store
from pyrocket.broker.access import read_access
from pyrocket.rpc.tls import Certificate
from pyspark_pyrocket.tools.doctor import endpoint as steps
from support.broker import served
from support.certificates import write_certificate
from support.commands import document, run

USERS = """
[users.spark]
secret = "spark's secret"
[[rules]]
users = ["spark"]
topics = ["orders"]
allow = ["subscribe"]
"""


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("orders")
    return store


def examined(address, *arguments, status=0, **environment):
    found = document("doctor", "--endpoint", address, *arguments, status=status, **environment)
    verdicts = {
        check["name"].removeprefix(f"{address}: "): check["verdict"] for check in found["checks"]
    }
    return verdicts, found["checks"][-1]


def test_every_step_succeeds_with_a_broker_without_users(store):
    with served(store) as address:
        verdicts, _ = examined(address)
        assert verdicts == dict.fromkeys(
            ["name", "port", "credentials", "store", "clock", "rights"], "ok"
        )


def test_tls_and_credentials_are_checked(store, tmp_path):
    pem, key = write_certificate(tmp_path)
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text(USERS)
    access, certificate = read_access(str(users)), Certificate(str(pem), str(key))
    known = {"PYROCKET_ACCESS_KEY": "spark", "PYROCKET_SECRET_KEY": "spark's secret"}
    with served(store, access=lambda: access, certificate=certificate) as address:
        verdicts, last = examined(address, "--tls", "--ca", pem, **known)
        assert verdicts["TLS"] == verdicts["rights"] == "ok"
        assert last["found"] == "1 topics"

        verdicts, last = examined(address, "--tls", "--ca", pem, status=1)
        assert (last["verdict"], [*verdicts][-1]) == ("fail", "credentials")
        assert "secretKey" in last["remedy"]

        verdicts, last = examined(address, "--tls", status=1, **known)
        assert [*verdicts][-1] == "TLS"
        assert "self" in last["found"]

        verdicts, last = examined(address, status=1, **known)
        assert [*verdicts][-1] == "calls"
        assert "--tls" in last["remedy"]


def test_a_closed_port_and_an_unknown_host_are_reported():
    verdicts, last = examined("127.0.0.1:1", status=1)
    assert verdicts == {"name": "ok", "port": "fail"}
    assert "pyrocket broker" in last["remedy"]
    assert examined("127.0.0.1", status=1)[0] == {"name": "fail"}
    assert run("doctor", "--endpoint", "host.invalid:1").exit_code == 1


def test_a_clock_that_differs_is_a_warning(monkeypatch):
    assert steps._clock("a:1", 0).verdict.value == "warn"
    assert steps._rights("a:1", 0).verdict.value == "warn"
