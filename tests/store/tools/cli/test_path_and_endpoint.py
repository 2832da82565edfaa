"""Commands have the same output and errors for a directory and for a broker."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest
from pyrocket import Message, Store
from pyrocket.client.embedded import open_brokers
from pyrocket.errors import OptionError, TransportError
from pyrocket.server.tls import Certificate
from pyrocket.tools import notebook
from support.broker import join_group, served
from support.certificates import write_certificate
from support.commands import run
from support.stores import SMALL, append_as_broker
from support.users import ADMIN, access_of


def fill(store):
    """Topic t with 3 messages in queue 0 and 2 in queue 1; group billing has consumed one."""
    store.topics.create("t", read_queues=2, write_queues=2)
    for number, queue in enumerate((0, 1, 0, 1, 0)):
        keys = [f"k-{number % 2}"]
        store.append(Message(topic="t", body=b"m%d" % number, queue_id=queue, keys=keys))
    store.groups.commit("billing", "t", {0: 1})
    store.topics.create("%DLQ%billing", read_queues=1, write_queues=1)
    for body in (b"dead", b"deader"):
        own = {"DLQ_ORIGIN_TOPIC": "u", "RETRY_TOPIC": "u", "TAGS": "T", "mine": "1"}
        own["UNIQ_KEY"] = body.hex().ljust(32, "0")
        append_as_broker(store, "%DLQ%billing", own, 0, body=body)


@pytest.fixture(scope="module", params=["path", "endpoint"])
def where(request, tmp_path_factory):
    """Return the options that name the store."""
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
    assert cli("topic", "delete", "new", answer="y\n").stdout == "Topic new was deleted.\n"
    missing = document("topic", "delete", "new", "--yes", status=2)["error"]
    assert missing["code"] == "TOPIC_NOT_FOUND"


def test_messages_are_found_by_key_and_id(cli, document):
    found = document("message", "find", "t", "--key", "k-1")["messages"]
    assert [one["body"] for one in found] == ["m1", "m3"]
    newest = document("message", "find", "t", "--key", "k-0", "--count", 1)["messages"]
    assert [one["body"] for one in newest] == ["m4"]
    assert document("message", "find", "t", "--id", found[0]["msgId"])["messages"] == found[:1]
    assert "keys=k-1  m1" in cli("message", "find", "t", "--key", "k-1").stdout
    assert document("message", "find", "t", "--key", "none", status=1) == {"messages": []}
    assert cli("message", "find", "t", "--key", "none").stderr == "No message found.\n"


def test_messages_are_sent_and_tailed(cli, document):
    document("topic", "create", "sent", "--queues", 1)
    (first,) = document("message", "send", "sent", "hello", "--tags", "T")["messages"]
    assert (first["queueId"], first["queueOffset"]) == (0, 0)
    lines = cli("message", "send", "sent", "--key", "k", answer=b"x\n\xff\n").stdout
    assert [line.split()[:2] for line in lines.splitlines()] == [
        ["queue=0", "offset=1"],
        ["queue=0", "offset=2"],
    ]
    found = document("message", "tail", "sent", "--count", 3)["messages"]
    assert [one["body"] for one in found] == ["hello", "x", "/w=="]
    assert (found[0]["msgId"], found[0]["tags"]) == (first["msgId"], "T")
    assert cli("message", "tail", "sent", "--queue", 0).stdout.count("\n") == 3
    assert document("message", "tail", "sent", "--queue", 1, status=2)["error"]["code"]
    refused = document("message", "send", "snt", "x", status=2)["error"]
    assert (refused["code"], "--create-topic" in refused["remedy"]) == ("TOPIC_NOT_FOUND", True)
    assert cli("message", "send", "made", "x", "--create-topic").exit_code == 0
    for name in ("sent", "made"):
        document("topic", "delete", name, "--yes")


def test_groups_are_shown_with_their_lag(cli, document):
    groups = {one["group"]: one["topics"] for one in document("group", "list")["groups"]}
    assert [(one["topic"], one["lag"]) for one in groups["billing"]] == [("t", 4)]
    lag = document("group", "lag", "billing")["lag"]
    assert [(one["committedOffset"], one["lag"]) for one in lag] == [(1, 2), (None, 2)]
    assert "billing" in cli("group", "list").stdout
    heading = cli("group", "lag").stdout.splitlines()[0].split()
    assert heading[:4] == ["group", "topic", "broker", "queue"]
    error = document("group", "lag", "bilin", status=2)["error"]
    assert (error["code"], "'billing'" in error["remedy"]) == ("GROUP_NOT_FOUND", True)


def test_dead_letters_are_listed_and_resent(cli, document):
    document("topic", "create", "u", "--queues", 1)
    first, second = document("dlq", "list", "billing")["messages"]
    assert (first["body"], first["originTopic"]) == ("dead", "u")
    assert cli("dlq", "list", "billing", "--count", 1).stdout.startswith("topic=u id=")
    planned = document("dlq", "resend", "billing", "--all", "--dry-run")["messages"]
    assert [one["newMsgId"] for one in planned] == [None, None]
    assert document("message", "tail", "u")["messages"] == []
    (sent,) = document("dlq", "resend", "billing", "--id", second["msgId"])["messages"]
    (found,) = document("message", "tail", "u")["messages"]
    assert (found["body"], found["tags"], found["msgId"]) == ("deader", "T", sent["newMsgId"])
    shown = cli("dlq", "resend", "billing", "--id", first["msgId"]).stdout
    assert first["msgId"] in shown
    assert [one["body"] for one in document("message", "tail", "u")["messages"]][-1] == "dead"
    assert found["properties"] == {"mine": "1"}
    assert "would be sent" in cli("dlq", "resend", "billing", "--all", "--dry-run").stdout
    assert document("dlq", "resend", "billing", status=2)["error"]["code"] == "USAGE"
    assert [one["resent"] for one in document("dlq", "list", "billing")["messages"]] == [True] * 2
    missing = document("dlq", "resend", "billing", "--id", "X", status=2)["error"]
    assert missing["code"] == "MESSAGE_NOT_FOUND"
    assert document("dlq", "list", "bilin", status=2)["error"]["code"] == "GROUP_NOT_FOUND"
    document("group", "create", "alive")
    assert document("dlq", "list", "alive", status=1)["messages"] == []
    for arguments in (("topic", "delete", "u"), ("group", "delete", "alive")):
        document(*arguments, "--yes")


def test_a_store_is_shown_changed_and_cleaned(cli, document, where):
    found = document("store", "info")
    assert (found["path"], found["brokerName"]) == (where[1], "broker-a")
    assert found["uuid"]
    assert found["logEnd"] > found["logStart"]
    label = where[0].removeprefix("--")
    assert cli("store", "info").stdout.splitlines()[0].split() == [label, where[1]]
    kept = document("store", "retention", "--retention-hours", 48)["retention"]
    assert kept == {"hours": 48, "bytes": None, "cleanTime": [4]}
    assert cli("store", "retention", "--retention-hours", "none").stdout == "messages kept: all\n"
    planned = document("store", "clean", "--hours", 1, "--dry-run")
    assert (planned["dryRun"], planned["logFiles"]) == (True, [])
    assert "0 log files" in cli("store", "clean", "--hours", 1).stdout
    assert document("store", "clean", status=2)["error"]["code"] == "USAGE"


def test_the_tables_of_a_notebook_show_the_store(where):
    store = where[1] if where[0] == "--path" else notebook.at(where[1])
    assert "t" in notebook.topics(store).column("topic")
    assert notebook.queues(store, "t").column("queue") == [0, 1]
    assert notebook.peek(store, "t", 2).column("body") == [b"m3", b"m4"]
    assert notebook.lag(store, "billing").column("lag") == [2, 2]
    assert notebook.groups(store).column("group") == ["billing"]
    assert len(next(iter(notebook.topics(store)))["trend"]) == 16
    if where[0] == "--endpoint":
        store.close()


def test_a_topic_is_altered(cli, document):
    document("topic", "create", "wide", "--queues", 1)
    altered = document("topic", "alter", "wide", "--read-queues", 3, "--perm", "r")
    assert (altered["readQueues"], altered["writeQueues"], altered["perm"]) == (3, 1, 4)
    assert cli("topic", "alter", "wide", "--perm", "rw").stdout.splitlines()[1].split()[0] == "wide"
    assert document("topic", "alter", "wide", status=2)["error"]["code"] == "USAGE"
    both = document("topic", "alter", "wide", "--queues", 5)
    assert (both["readQueues"], both["writeQueues"]) == (5, 5)
    twice = ("--queues", 5, "--read-queues", 5)
    assert document("topic", "alter", "wide", *twice, status=2)["error"]["code"] == "USAGE"
    assert document("topic", "alter", "wide", "--ordered")["ordered"]
    assert "sharding keys keep their queues" in cli("topic", "show", "wide").stdout
    assert not document("topic", "alter", "wide", "--not-ordered")["ordered"]
    planned = document("topic", "delete", "wide", "--dry-run")
    assert (planned["deleted"], planned["dryRun"]) == (False, True)
    assert cli("topic", "delete", "wide", "--dry-run").stdout.endswith("would be deleted.\n")
    assert document("topic", "delete", "wide", "--yes")["deleted"]
    error = document("topic", "alter", "wide", "--perm", "r", status=2)["error"]
    assert error["code"] == "TOPIC_NOT_FOUND"


def test_messages_are_shown_from_the_start_from_an_offset_or_from_a_time(cli, document):
    def bodies(*arguments):
        return [one["body"] for one in document("message", "show", "t", *arguments)["messages"]]

    assert bodies() == ["m0", "m1", "m2", "m3", "m4"]
    assert bodies("--count", 2) == ["m0", "m1"]
    assert bodies("--queue", 0, "--offset", 1) == ["m2", "m4"]
    assert bodies("--from", 0, "--queue", 1) == ["m1", "m3"]
    assert bodies("--from", "2999-01-01T00:00:00Z") == []
    assert bodies("--from", "-1h") == ["m0", "m1", "m2", "m3", "m4"]
    assert bodies("--from", "-1ms") == []
    assert cli("message", "show", "t").stdout.splitlines()[0].startswith("queue=0 offset=0 ")
    assert document("message", "show", "t", "--offset", 1, status=2)["error"]["code"] == "USAGE"
    wrong = document("message", "show", "t", "--from", "soon", status=2)["error"]
    assert wrong["code"] == "CLI_TIME"
    beyond = document("message", "show", "t", "--queue", 0, "--offset", 9, status=2)["error"]
    assert beyond["code"] == "OFFSET_OUT_OF_RANGE"


def test_the_type_of_a_topic_is_set_changed_and_shown(cli, document):
    document("topic", "create", "typed", "--type", "FIFO")
    assert document("topic", "show", "typed")["messageType"] == "FIFO"
    document("topic", "alter", "typed", "--type", "MIXED")
    assert "the type MIXED" in cli("topic", "show", "typed").stdout
    assert document("topic", "show", "t")["messageType"] == ""
    cli("topic", "delete", "typed", "--yes")


@pytest.fixture
def member(where, cli):
    """The member of the group `busy`, as errors name it."""
    option, place = where
    cli("group", "create", "busy")
    if option == "--endpoint":
        join_group(place, "busy", "c1", t="*")
        yield "c1"
    else:
        open_brokers.acquire(place, create=False).consumers.held.hold("busy")
        yield f"process {os.getpid()}"
        open_brokers.release(place)
    cli("group", "delete", "busy", "--yes")


def test_a_group_with_members_is_reset_only_with_force(document, member):
    reset = "group", "reset", "busy", "t", "--to", "latest"
    refused = document(*reset, status=2)["error"]
    assert refused["code"] == "GROUP_HAS_MEMBERS"
    assert member in refused["message"]
    assert "--force" in refused["remedy"]
    assert [one["after"] for one in document(*reset, "--force")["offsets"]] == [3, 2]


def test_a_group_is_created_shown_reset_and_deleted(cli, document):
    assert document("group", "create", "etl") == {"group": "etl", "created": True}
    assert cli("group", "create", "etl").stdout == "Group etl exists; nothing was changed.\n"
    planned = document("group", "reset", "etl", "t", "--to", "latest", "--dry-run")
    ends = [{"queueId": 0, "before": None, "after": 3}, {"queueId": 1, "before": None, "after": 2}]
    assert (planned["dryRun"], planned["offsets"]) == (True, ends)
    assert document("offset", "show", "etl", status=1) == {"offsets": []}
    assert document("group", "reset", "etl", "t", "--to", "latest")["offsets"] == ends
    assert document("group", "reset", "etl", "t", "--offset", "0=1")["offsets"][0] == {
        "queueId": 0,
        "before": 3,
        "after": 1,
    }
    shown = document("offset", "show", "etl", "t")["offsets"]
    assert [one["committedOffset"] for one in shown] == [1, 2]
    row = cli("offset", "show", "etl").stdout.splitlines()[1].split()
    assert row == ["t", "broker-a", "0", "0", "1", "3"]
    assert "would be" in cli("group", "reset", "etl", "t", "--to", 0, "--dry-run").stdout
    ago = document("group", "reset", "etl", "t", "--to", "-2h", "--dry-run")["offsets"]
    assert [one["after"] for one in ago] == [0, 0]
    shown = cli("group", "reset", "etl", "t", "--offset", "0=1").stdout
    assert shown.splitlines()[-2].split() == ["0", "1", "1"]
    found = document("group", "show", "etl")
    assert (found["group"], found["topics"][0]["lag"]) == ("etl", 2)
    assert "retryMaxTimes" in cli("group", "show", "etl").stdout
    assert document("group", "delete", "etl", "--dry-run")["deleted"] is False
    assert cli("group", "delete", "etl", answer="n\n").exit_code == 1
    assert cli("group", "delete", "etl", "--yes").stdout == "Group etl was deleted.\n"


def test_the_settings_of_a_group_are_changed_and_shown(cli, document):
    first = document("group", "alter", "etl", "--create-missing", "--fifo", "--retries", "3")
    assert (first["created"], first["fifo"], first["retryMaxTimes"]) == (True, True, 3)
    assert first["retryDelaysMs"][:2] == [10_000, 30_000]
    again = document("group", "alter", "etl", "--no-consume", "--retry-delays", "1s 2m")
    assert (again["fifo"], again["consumeEnabled"], again["created"]) == (True, False, False)
    assert again["retryDelaysMs"] == [1000, 120_000]
    shown = document("group", "show", "etl")
    assert {name: shown[name] for name in again if name != "created"} == {
        name: value for name, value in again.items() if name != "created"
    }
    assert "1000 120000" in cli("group", "show", "etl").stdout
    assert document("group", "alter", "etl", "--retry-delays", "default")["retryDelaysMs"][2] == (
        60_000
    )
    grows = document(
        *("group", "alter", "etl", "--retry-backoff", "5s", "2h", 3, "--retry-queues", 2)
    )
    assert (grows["retryInitialMs"], grows["retryMaxMs"]) == (5000, 7_200_000)
    assert (grows["retryMultiplier"], grows["retryQueues"]) == (3, 2)
    assert "retryDelaysMs" not in grows
    assert document("group", "alter", "etl", "--fifo")["retryMultiplier"] == 3
    assert "retryMultiplier" in cli("group", "alter", "etl", "--fifo").stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("group show bilin", "GROUP_NOT_FOUND"),
        ("group alter bilin --fifo", "GROUP_NOT_FOUND"),
        ("group alter billing", "USAGE"),
        ("group alter billing --retry-delays soon", "USAGE"),
        ("group alter billing --retry-backoff 5s soon 2", "USAGE"),
        ("group alter billing --retry-backoff 5s 1s 2", "USAGE"),
        ("group alter billing --retry-backoff 0s 1s 2", "USAGE"),
        ("group alter billing --retry-backoff 1s 2s 2 --retry-delays 1s", "USAGE"),
        ("group alter billing --retry-queues 0", "USAGE"),
        ("group delete bilin --yes", "GROUP_NOT_FOUND"),
        ("group create a/b", "GROUP_ILLEGAL"),
        ("group list billing", "USAGE"),
        ("topic list --kind t", "USAGE"),
        ("offset show bilin", "GROUP_NOT_FOUND"),
        ("group reset billing t", "USAGE"),
        ("group reset billing t --to soon", "CLI_TIME"),
        ("group reset billing t --offset 0", "USAGE"),
        ("group reset billing t --offset 0=99", "OFFSET_OUT_OF_RANGE"),
        ("group reset billing t --offset 0=99 --dry-run", "OFFSET_OUT_OF_RANGE"),
        ("group reset billing t --offset 9=0 --dry-run", "QUEUE_NOT_FOUND"),
        ("group reset billing tt --to latest", "TOPIC_NOT_FOUND"),
        ("broker status --path /none", "STORE_NOT_FOUND"),
    ],
)
def test_usage_errors_have_a_code(document, command, code, where):
    if command.startswith("broker"):
        assert json.loads(run(*command.split(), "--json").stdout)["error"]["code"] == code
        return
    assert document(*command.split(), status=2)["error"]["code"] == code


def test_the_status_of_a_broker_is_shown(cli, document, where):
    served_at = where[0] == "--endpoint"
    found = document("broker", "status", status=0 if served_at else 1)
    assert (found["writable"], found["diskFull"], found["dispatchBehindBytes"]) == (True, False, 0)
    shown = cli("broker", "status").stdout
    if served_at:
        assert (found["listen"], found["brokerName"]) == ([where[1]], "broker-a")
        assert "published" in shown
    else:
        assert shown.startswith("No broker serves")


def test_bench_measures_rates_and_a_reference(cli, document):
    found = document("bench", "--seconds", 0.1, "--body-bytes", 10)
    assert all(found[name]["perSecond"] > 0 for name in ("reference", "send", "receive"))
    lines = cli("bench", "--seconds", 0.1).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["what", "reference", "send", "receive"]
    assert not any("bench" in one["topic"] for one in document("topic", "list")["topics"])
    assert document("bench", "--seconds", 0, status=2)["error"]["code"] == "USAGE"


@pytest.mark.parametrize("command", ["verify", "repair", "snapshot"])
def test_commands_that_need_the_files_reject_an_endpoint(command):
    done = run(command, "--endpoint", "localhost:1")
    assert done.exit_code == 2
    assert "on the broker's machine" in done.stderr
    assert f"pyrocket {command}`" in done.stderr


def test_an_unreachable_endpoint_is_reported_within_seconds():
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


@pytest.mark.parametrize("address", ["nohost", "host:", ":1", "a:1,b", "host:x"])
def test_an_address_without_host_or_port_is_rejected(address):
    done = run("topic", "list", "--endpoint", address)
    assert (done.exit_code, "Write host:port" in done.stderr) == (2, True)


def test_an_endpoint_without_grpcio_names_the_install_command():
    code = "import sys; sys.modules['grpc'] = None; from pyrocket.tools.cli import main; main()"
    command = [sys.executable, "-c", code, "topic", "list", "--endpoint", "localhost:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install '.[endpoint]'" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_missing_store_and_missing_or_conflicting_options_are_errors(tmp_path, monkeypatch):
    monkeypatch.delenv("PYROCKET_STORE", raising=False)
    missing = json.loads(run("topic", "list", "--path", tmp_path / "no", "--json").stdout)
    assert missing["error"]["code"] == "STORE_NOT_FOUND"
    none = run("topic", "list")
    assert (none.exit_code, "--path" in none.stderr, "--endpoint" in none.stderr) == (2, True, True)
    both = run("topic", "list", "--path", tmp_path, "--endpoint", "localhost:1")
    assert (
        both.exit_code,
        "either by a path, by an endpoint or by name servers" in both.stderr,
    ) == (2, True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with TLS and users: its address, its certificate, and a folder for files."""
    folder = tmp_path_factory.mktemp("secured")
    reader, guest = ("subscribe", "t", "billing"), ("subscribe", "absent")
    access = access_of(folder, root=ADMIN, reader=reader, guest=guest)
    certificate, key = write_certificate(folder)
    with Store.open(folder / "store", create=True, config=SMALL) as store:
        fill(store)
        served_certificate = Certificate(str(certificate), str(key))
        with served(store, access=lambda: access, certificate=served_certificate) as address:
            yield address, certificate, folder


def test_tls_and_credentials_are_set_by_options_environment_or_file(secured):
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


def test_missing_rights_and_wrong_secrets_are_errors(secured):
    address, certificate, _ = secured
    options = ["--endpoint", address, "--tls", "--ca", certificate, "--json"]
    reader = {"PYROCKET_ACCESS_KEY": "reader", "PYROCKET_SECRET_KEY": "the reader's secret"}
    assert run("message", "tail", "t", *options, **reader).exit_code == 0
    listed = run("topic", "list", *options, **reader)
    assert [one["topic"] for one in json.loads(listed.stdout)["topics"]] == ["t"]
    assert run("topic", "show", "t", *options, **reader).exit_code == 0
    lag = run("group", "lag", *options, **reader)
    assert {one["group"] for one in json.loads(lag.stdout)["lag"]} == {"billing"}
    assert run("group", "show", "billing", *options, **reader).exit_code == 0
    assert run("store", "info", *options, **reader).exit_code == 2
    refused = run("topic", "delete", "t", "--yes", *options, **reader)
    assert (refused.exit_code, "reader" in refused.stdout) == (2, True)
    wrong = run("topic", "list", *options, **{**reader, "PYROCKET_SECRET_KEY": "x"})
    assert (wrong.exit_code, "the reader's secret" in wrong.output) == (2, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('endpont = "x:1"', "'endpoint'"),
        ('tls = "yes"', "tls is not true or false"),
        ("path = 1", "path is not text"),
        ("path", "not valid TOML"),
        ('path = "x"\nsecret_key = "y"', "chmod 600"),
        ('path = "x"\nendpoint = "y:1"', "either by a path, by an endpoint or by name servers"),
    ],
)
def test_an_invalid_settings_file_is_rejected(tmp_path, text, expected):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    file.chmod(0o644)
    done = run("topic", "list", "--config", file)
    assert (done.exit_code, expected in done.stderr) == (2, True), done.stderr
    assert "[CLI_SETTINGS]" in done.stderr or "Usage:" in done.stderr


def test_a_secret_cannot_be_given_as_an_option():
    assert "--secret-key " not in run("topic", "list", "--help").stdout
    given = run("topic", "list", "--secret-key", "s")
    assert (given.exit_code, "No such option" in given.stderr) == (2, True)
    with pytest.raises(OptionError, match="secret-key-file"):
        notebook.at("localhost:1", secret_key_file="/none")


def test_tables_are_drawn_on_a_terminal(tmp_path, monkeypatch):
    with Store.open(tmp_path / "s", create=True) as store:
        fill(store)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in run("topic", "list", "--path", tmp_path / "s").stdout
    assert "\x1b" in run("group", "lag", "--path", tmp_path / "s").stdout
