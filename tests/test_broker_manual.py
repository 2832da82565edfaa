"""The files for deployments, and the lines of openssl in `store/BROKER.md`, are correct."""

import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyrocket import Client, Connection, Store
from pyrocket.server.tls import Certificate
from support import broker_process
from support.broker import served
from support.broker_manual import PAGE
from support.certificates import write_certificate
from support.commands import document, run
from support.stores import message

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples" / "deploy"
WORDS = r"[a-z_][a-z0-9_]*"


def text_of(name):
    return (DEPLOY / name).read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    """The program in /opt is replaced by one that exists."""
    unit = tmp_path / "pyrocket.service"
    program = "/opt/pyrocket/bin/pyrocket"
    unit.write_text(text_of("pyrocket.service").replace(program, shutil.which("true")))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_options_in_the_files_exist():
    (started,) = re.findall(r"^ExecStart=(.*)$", text_of("pyrocket.service"), re.MULTILINE)
    lines = re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]$", text_of("Containerfile"), re.MULTILINE)
    contained = [word for line in lines for word in re.findall(r'"([^"]*)"', line)]
    for program, command, _, *given in (shlex.split(started), contained):
        assert (Path(program).name, command) == ("pyrocket", "broker")
        options = [word for word in given if word.startswith("-")]
        shown = run("broker", "start", "--help").stdout
        assert options
        assert all(re.search(rf"(^|\s){word}\b", shown) for word in options)


def test_the_compose_file_has_the_secrets_and_ports_of_the_container():
    compose, container = text_of("compose.yaml"), text_of("Containerfile")
    for name in re.findall(r"/run/secrets/([\w.]+)", container):
        assert f"      - {name}\n" in compose
        assert f"  {name}:\n    file: {name}\n" in compose
    for port in re.search(r"^EXPOSE (.*)$", container, re.MULTILINE)[1].split():
        assert re.search(rf':{port}"$', compose, re.MULTILINE)
    named = re.search(r"dockerfile: (.*)", compose)[1]
    assert (DEPLOY / "../.." / named).resolve() == DEPLOY / "Containerfile"


def test_the_extra_in_the_container_file_exists():
    (installed,) = re.findall(r"'/src\[(\w+)\]'", text_of("Containerfile"))
    assert f'"{installed}"' in (ROOT / "setup.py").read_text()


def expressions():
    """Return the PromQL expressions of the dashboard and of the alerts."""
    panels = json.loads(text_of("grafana-dashboard.json"))["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    alerts = re.findall(r"^ +expr: (.*)$", text_of("alerts.yaml"), re.MULTILINE)
    assert len(alerts) == text_of("alerts.yaml").count("- alert:")
    return shown, alerts


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the names of the samples that a broker exports, with their labels."""
    path = tmp_path_factory.mktemp("metrics") / "s"
    with Store.open(path, create=True) as store:
        store.append(message())
        store.groups.commit("g", "t", {0: 0})
    pem, key = write_certificate(path.parent)
    tls = ("--tls-certificate", pem, "--tls-key", key, "--listen", "plain://127.0.0.1:0")
    with broker_process.running(path, *tls, "--metrics", "127.0.0.1:0") as (_, found):
        run("topic", "list", "--endpoint", found.listen[0])
        client = Client(Connection(found.listen[0]))
        replica = client.stream("Replicate", replica="id", name="a replica")
        next(replica)
        with urllib.request.urlopen(f"http://{found.metrics}/metrics") as reply:
            text = reply.read().decode()
        replica.close()
        client.close()
    families = text_string_to_metric_families(text)
    return {one.name: {*one.labels} for family in families for one in family.samples}


def test_the_dashboard_and_the_alerts_use_metrics_and_labels_that_a_broker_exports(exported):
    shown, alerts = expressions()
    for expression in [*shown, *alerts]:
        names = re.findall(rf"\b(?:rocketmq|pyrocket)_{WORDS}", expression)
        assert names or expression == 'up{job="pyrocket"} == 0', expression
        for name in names:
            assert name in exported, expression
            filters = re.findall(rf"{name}{{(.*?)}}", expression)
            used = {label for one in filters for label in re.findall(rf"({WORDS})=", one)}
            for group in re.findall(r"by \((.*?)\)", expression):
                used |= {*group.split(", ")}
            assert used <= exported[name], expression


def test_the_labels_in_the_texts_of_alerts_and_panels_exist(exported):
    labels = {label for each in exported.values() for label in each} | {"instance"}
    for name in ("alerts.yaml", "grafana-dashboard.json"):
        used = re.findall(rf"{{{{ ?(?:\$labels\.)?({WORDS}) ?}}}}", text_of(name))
        assert used
        assert {*used} <= labels


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_the_lines_of_openssl_make_a_certificate_that_clients_accept(tmp_path):
    block = re.search(r"```sh\n((?:openssl .*\n){3})```", PAGE.read_text())[1]
    subprocess.run(["bash", "-ec", block], cwd=tmp_path, check=True, capture_output=True)
    certificate = Certificate(str(tmp_path / "broker.pem"), str(tmp_path / "broker.key"))
    store = Store.open(tmp_path / "s", create=True)
    store.topics.create("t")
    with served(store, certificate=certificate) as address:
        checks = document("doctor", "--endpoint", address, "--ca", tmp_path / "ca.pem")["checks"]
        assert {one["verdict"] for one in checks} == {"ok"}
        # As Python 3.13 and newer do by default.
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            assert secure.version() == "TLSv1.3"
