"""Each command of a group on a directory and at a broker: the same answers and errors."""

import json
import socket
import time

import pytest
from pyrocket import Message, Store
from pyrocket.broker.access import read_access
from pyrocket.errors import OptionError, TransportError
from pyrocket.rpc.tls import Certificate
from pyrocket.tools import notebook
from support.broker import served
from support.certificates import write_certificate
from support.commands import run
from support.stores import SMALL


def fill(store):
    """Topic t with 3 messages in queue 0 and 2 in queue 1; group billing has consumed one."""
    store.topics.create("t", read_queues=2, write_queues=2)
    for number, queue in enumerate((0, 1, 0, 1, 0)):
        keys = [f"k-{number % 2}"]
        store.append(Message(topic="t", body=b"m%d" % number, queue_id=queue, keys=keys))
    store.groups.commit("billing", "t", {0: 1})


@pytest.fixture(scope="module", params=["path", "endpoint"])
def where(request, tmp_path_factory):
    """The options that name the store."""
    path = tmp_path_factory.mktemp("cli") / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        fill(store)
        if request.param == "endpoint":
            with served(store) as address:
                yield "--endpoint", address
            return
    yield "--path", str(path)


@pytest.fixture
def cli(where):
    """Run a command on the store, and return click's result."""
    return lambda *arguments, **options: run(*arguments, *where, **options)


@pytest.fixture
def document(cli):
    """Run a command on the store, and return its JSON."""

    def read(*arguments, status=0, **options):
        done = cli(*arguments, "--json", **options)
        assert done.exit_code == status, done.output
        assert not done.stderr
        return json.loads(done.stdout)

    return read


def test_topics_are_listed_and_shown(cli, document):
    topic = next(one for one in document("topic", "list")["topics"] if one["topic"] == "t")
    assert (topic["readQueues"], topic["kind"]) == (2, "user")
    queues = document("topic", "show", "t")["queues"]
    assert [one["queueId"] for one in queues] == [0, 1]
    heads, *lines = cli("topic", "list").stdout.splitlines()
    assert heads.split()[:3] == ["topic", "queues", "messages"]
    assert any(line.split()[:2] == ["t", "2"] for line in lines)
    assert "minimum" in cli("topic", "show", "t").stdout


def test_a_topic_is_created_and_deleted(cli, document):
    assert document("topic", "create", "new", "--queues", 3) == {"topic": "new", "created": True}
    assert document("topic", "show", "new")["readQueues"] == 3
    again = document("topic", "create", "new", status=2)["error"]
    assert (again["code"], "--if-missing" in again["remedy"]) == ("TOPIC_EXISTS", True)
    assert "exists" in cli("topic", "create", "new", "--if-missing").stdout
    assert document("topic", "delete", "new", status=1) == {"topic": "new", "deleted": False}
    assert cli("topic", "delete", "new", answer="y\n").stdout == "Topic new is deleted.\n"
    missing = document("topic", "delete", "new", "--yes", status=2)["error"]
    assert missing["code"] == "TOPIC_NOT_FOUND"


@pytest.mark.parametrize(
    "command",
    ["topic show tt", "topic delete tt --yes", "message tail tt", "message query tt --key k"],
)
def test_a_wrong_topic_is_named_with_the_nearest(document, command):
    error = document(*command.split(), status=2)["error"]
    assert (error["code"], "'t'" in error["remedy"]) == ("TOPIC_NOT_FOUND", True)


def test_messages_are_found_by_key_and_id(cli, document):
    found = document("message", "query", "t", "--key", "k-1")["messages"]
    assert [one["body"] for one in found] == ["m1", "m3"]
    newest = document("message", "query", "t", "--key", "k-0", "--count", 1)["messages"]
    assert [one["body"] for one in newest] == ["m4"]
    assert document("message", "query", "t", "--id", found[0]["msgId"])["messages"] == found[:1]
    assert "keys=k-1  m1" in cli("message", "query", "t", "--key", "k-1").stdout
    assert document("message", "query", "t", "--key", "none", status=1) == {"messages": []}
    assert cli("message", "query", "t", "--key", "none").stderr == "No message found.\n"


def test_messages_are_sent_and_tailed(cli, document):
    document("topic", "create", "sent", "--queues", 1)
    (first,) = document("message", "produce", "sent", "hello", "--tags", "T")["messages"]
    assert (first["queueId"], first["queueOffset"]) == (0, 0)
    lines = cli("message", "produce", "sent", "--key", "k", answer=b"x\n\xff\n").stdout
    assert [line.split()[:2] for line in lines.splitlines()] == [
        ["queue=0", "offset=1"],
        ["queue=0", "offset=2"],
    ]
    found = document("message", "tail", "sent", "--count", 3)["messages"]
    assert [one["body"] for one in found] == ["hello", "x", "/w=="]
    assert (found[0]["msgId"], found[0]["tags"]) == (first["msgId"], "T")
    assert cli("message", "tail", "sent", "--queue", 0).stdout.count("\n") == 3
    assert document("message", "tail", "sent", "--queue", 1, status=2)["error"]["code"]
    refused = document("message", "produce", "snt", "x", status=2)["error"]
    assert (refused["code"], "--create-topic" in refused["remedy"]) == ("TOPIC_NOT_FOUND", True)
    assert cli("message", "produce", "made", "x", "--create-topic").exit_code == 0
    for name in ("sent", "made"):
        document("topic", "delete", name, "--yes")


def test_groups_and_their_lag(cli, document):
    groups = {one["group"]: one["topics"] for one in document("group", "list")["groups"]}
    assert [(one["topic"], one["lag"]) for one in groups["billing"]] == [("t", 4)]
    lag = document("group", "lag", "billing")["lag"]
    assert [(one["committedOffset"], one["lag"]) for one in lag] == [(1, 2), (None, 2)]
    assert "billing" in cli("group", "list").stdout
    assert cli("group", "lag").stdout.splitlines()[0].split()[:3] == ["group", "topic", "queue"]
    error = document("group", "lag", "bilin", status=2)["error"]
    assert (error["code"], "'billing'" in error["remedy"]) == ("GROUP_NOT_FOUND", True)


def test_a_store_is_described_set_and_cleaned(cli, document, where):
    found = document("store", "info")
    assert (found["path"], found["brokerName"]) == (where[1], "broker-a")
    assert found["uuid"]
    assert found["logEnd"] > found["logStart"]
    assert f"path               {where[1]}" in cli("store", "info").stdout
    kept = document("store", "set", "--retention-hours", 48)["retention"]
    assert kept == {"hours": 48, "bytes": None, "cleanTime": [4]}
    assert cli("store", "set", "--retention-hours", "none").stdout == "messages kept: all\n"
    planned = document("store", "clean", "--hours", 1, "--dry-run")
    assert (planned["dryRun"], planned["logFiles"]) == (True, [])
    assert "0 log files" in cli("store", "clean", "--hours", 1).stdout
    assert document("store", "clean", status=2)["error"]["code"] == "USAGE"


def test_notebook_tables(where):
    store = where[1] if where[0] == "--path" else notebook.at(where[1])
    assert "t" in notebook.topics(store).column("topic")
    assert notebook.queues(store, "t").column("queue") == [0, 1]
    assert notebook.peek(store, "t", 2).column("body") == [b"m3", b"m4"]
    assert notebook.lag(store, "billing").column("lag") == [2, 2]
    assert notebook.groups(store).column("group") == ["billing"]
    assert len(next(iter(notebook.topics(store)))["trend"]) == 16
    if where[0] == "--endpoint":
        store.close()


@pytest.mark.parametrize(
    "command",
    ["store verify", "store repair", "store snapshot x", "verify", "repair", "snapshot", "clean"],
)
def test_what_needs_the_files_refuses_an_endpoint_by_name(command):
    done = run(*command.split(), "--endpoint", "localhost:1")
    assert done.exit_code == 2
    assert "on the broker's machine" in done.stderr
    assert f"pyrocket {command.removesuffix(' x')}`" in done.stderr.replace("main", "pyrocket")


def test_an_endpoint_that_cannot_be_reached_is_named_within_seconds():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        start = time.monotonic()
        done = run("topic", "list", "--json", "--endpoint", address)
    assert (done.exit_code, time.monotonic() - start < 15) == (2, True)
    error = json.loads(done.stdout)["error"]
    assert address in error["message"]
    assert error["remedy"]
    with pytest.raises(TransportError, match=address):
        notebook.at(address)


def test_a_missing_store_and_no_store_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("PYROCKET_STORE", raising=False)
    missing = json.loads(run("topic", "list", "--path", tmp_path / "no", "--json").stdout)
    assert missing["error"]["code"] == "STORE_NOT_FOUND"
    none = run("topic", "list")
    assert (none.exit_code, "--path" in none.stderr, "--endpoint" in none.stderr) == (2, True, True)
    both = run("topic", "list", "--path", tmp_path, "--endpoint", "localhost:1")
    assert (both.exit_code, "either a path or an endpoint" in both.stderr) == (2, True)


USERS = """
[users.root]
secret = "the root's secret"
[users.reader]
secret = "the reader's secret"
[[rules]]
users = ["root"]
topics = ["*"]
groups = ["*"]
allow = ["admin", "publish", "subscribe"]
[[rules]]
users = ["reader"]
topics = ["t"]
allow = ["subscribe"]
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with TLS and users: its address, its certificate, and a folder for files."""
    folder = tmp_path_factory.mktemp("secured")
    users = folder / "users.toml"
    users.touch(0o600)
    users.write_text(USERS)
    access = read_access(str(users))
    certificate, key = write_certificate(folder)
    with Store.open(folder / "store", create=True, config=SMALL) as store:
        fill(store)
        served_certificate = Certificate(str(certificate), str(key))
        with served(store, access=lambda: access, certificate=served_certificate) as address:
            yield address, certificate, folder


def test_tls_and_users_by_options_environment_and_file(secured):
    address, certificate, folder = secured
    secret = folder / "secret"
    secret.write_text("the root's secret\n")
    options = ["--endpoint", address, "--tls", "--ca", certificate, "--access-key", "root"]
    assert run("topic", "list", *options, "--secret-key-file", secret).exit_code == 0
    variables = {
        "PYROCKET_ENDPOINT": address,
        "PYROCKET_CA": str(certificate),
        "PYROCKET_TLS": "true",
        "PYROCKET_ACCESS_KEY": "root",
        "PYROCKET_SECRET_KEY": "the root's secret",
    }
    assert run("topic", "list", **variables).exit_code == 0
    settings = folder / "settings.toml"
    settings.write_text(
        f'endpoint = "{address}"\ntls = true\nca = "{certificate}"\naccess_key = "root"\n'
        f'secret_key_file = "{secret}"\n'
    )
    assert run("topic", "list", "--config", settings).exit_code == 0
    assert run("topic", "list", PYROCKET_CONFIG=str(settings)).exit_code == 0


def test_rights_and_wrong_secrets_are_refused_by_name(secured):
    address, certificate, _ = secured
    options = ["--endpoint", address, "--tls", "--ca", certificate, "--json"]
    reader = {"PYROCKET_ACCESS_KEY": "reader", "PYROCKET_SECRET_KEY": "the reader's secret"}
    assert run("message", "tail", "t", *options, **reader).exit_code == 0
    refused = run("topic", "delete", "t", "--yes", *options, **reader)
    assert (refused.exit_code, "reader" in refused.stdout) == (2, True)
    wrong = run("topic", "list", *options, **{**reader, "PYROCKET_SECRET_KEY": "x"})
    assert (wrong.exit_code, "the reader's secret" in wrong.output) == (2, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('endpont = "x:1"', "'endpoint'"),
        ('tls = "yes"', "tls is not true or false"),
        ("path = 1", "path is not text"),
        ("path", "not valid TOML"),
        ('path = "x"\nsecret_key = "y"', "chmod 600"),
        ('path = "x"\nendpoint = "y:1"', "either a path or an endpoint"),
    ],
)
def test_a_settings_file_with_an_error_is_refused(tmp_path, text, told):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    file.chmod(0o644)
    done = run("topic", "list", "--config", file)
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
    assert "[CLI_SETTINGS]" in done.stderr or "Usage:" in done.stderr


def test_a_secret_is_never_an_option_and_in_no_text():
    assert "--secret-key " not in run("topic", "list", "--help").stdout
    given = run("topic", "list", "--secret-key", "s")
    assert (given.exit_code, "No such option" in given.stderr) == (2, True)
    with pytest.raises(OptionError, match="secret-key-file"):
        notebook.at("localhost:1", secret_key_file="/none")
