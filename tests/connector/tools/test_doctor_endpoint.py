"""`pyrocket doctor --endpoint` tries each step of a call, and reports the one that fails."""

import json

import pytest
from pyrocket import Store
from pyrocket.server.tls import Certificate
from pyspark_pyrocket.tools.doctor import endpoint as steps
from support.broker import served
from support.certificates import write_certificate
from support.commands import document, run
from support.users import access_of, secret_of

RULE = "subscribe", "orders"


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
    access, certificate = access_of(tmp_path, spark=RULE), Certificate(str(pem), str(key))
    known = {"PYROCKET_ACCESS_KEY": "spark", "PYROCKET_SECRET_KEY": secret_of("spark")}
    with served(store, access=lambda: access, certificate=certificate) as address:
        verdicts, last = examined(address, "--tls", "--ca", pem, **known)
        assert verdicts["TLS"] == verdicts["rights"] == "ok"
        assert last["found"] == "1 topic"

        verdicts, last = examined(address, "--tls", "--ca", pem, status=1)
        assert (last["verdict"], [*verdicts][-1]) == ("fail", "credentials")
        assert "--secret-key-file" in last["remedy"]

        verdicts, last = examined(address, "--tls", status=1, **known)
        assert [*verdicts][-1] == "TLS"
        assert "self" in last["found"]

        verdicts, last = examined(address, status=1, **known)
        assert [*verdicts][-1] == "calls"
        assert "--tls" in last["remedy"]


def test_the_user_and_the_endpoint_come_from_the_places_of_all_commands(store, tmp_path):
    pem, key = write_certificate(tmp_path)
    secret, config = tmp_path / "secret", tmp_path / "cli.toml"
    secret.write_text(secret_of("spark") + "\n")
    access, certificate = access_of(tmp_path, spark=RULE), Certificate(str(pem), str(key))
    with served(store, access=lambda: access, certificate=certificate) as address:
        config.touch(0o600)
        config.write_text(
            f'endpoint = "{address}"\nca = "{pem}"\naccess_key = "spark"\n'
            f'secret_key_file = "{secret}"\n'
        )
        user = ["--access-key", "spark", "--secret-key-file", secret]
        in_environment = {
            "PYROCKET_ENDPOINT": address,
            "PYROCKET_CA": str(pem),
            "PYROCKET_ACCESS_KEY": "spark",
            "PYROCKET_SECRET_KEY_FILE": str(secret),
        }
        for arguments, environment in (
            (["--endpoint", address, "--ca", pem, *user], {}),
            ([], in_environment),
            ([], {"PYROCKET_CONFIG": str(config)}),
            (["--config", config], {}),
        ):
            found = document("doctor", *arguments, **environment)
            assert {one["verdict"] for one in found["checks"]} == {"ok"}
            assert f"{address}: TLS" in {one["name"] for one in found["checks"]}


def test_a_file_of_a_secret_that_is_missing_is_an_error(tmp_path):
    flags = ["--endpoint", "127.0.0.1:1", "--secret-key-file", tmp_path / "nothing"]
    error = document("doctor", *flags, status=2)["error"]
    assert "secret-key-file" in error["message"]


def test_a_path_checks_this_machine_although_the_environment_names_a_broker(tmp_path):
    done = run("doctor", tmp_path, "--json", PYROCKET_ENDPOINT="127.0.0.1:1")
    assert not [one for one in json.loads(done.stdout)["checks"] if "127.0.0.1" in one["name"]]


def test_a_closed_port_and_an_unknown_host_are_reported():
    verdicts, last = examined("127.0.0.1:1", status=1)
    assert verdicts == {"name": "ok", "port": "fail"}
    assert "pyrocket broker" in last["remedy"]
    assert examined("127.0.0.1", status=1)[0] == {"name": "fail"}
    assert run("doctor", "--endpoint", "host.invalid:1").exit_code == 1


def test_a_clock_that_differs_is_a_warning(monkeypatch):
    assert steps._clock("a:1", 0).verdict.value == "warn"
    assert steps._rights("a:1", 0).verdict.value == "warn"
