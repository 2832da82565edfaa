"""The options with which commands select, print, follow, send and consume messages."""

import json
import signal
import time

import pytest
from click.shell_completion import ShellComplete
from pyrocket import Message, Store
from pyrocket.tools.cli import main
from support.broker import served
from support.commands import run
from support.forked import Forked, run_command
from support.stores import SMALL


@pytest.fixture(params=["path", pytest.param("endpoint", marks=pytest.mark.heavy)])
def where(request, path):
    """A store with 40 messages in two queues of topic t; every tenth has the tag A."""
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        for number in range(40):
            more = {"tags": "A", "keys": [f"k{number}"]} if number % 10 == 0 else {}
            properties = {"price": str(number)}
            store.append(
                Message(
                    topic="t",
                    body=b"m%d" % number,
                    queue_id=number % 2,
                    properties=properties,
                    **more,
                )
            )
        store.groups.create("billing")
        if request.param == "endpoint":
            with served(store) as address:
                yield "--endpoint", address
            return
    yield "--path", str(path)


@pytest.fixture
def lines(where):
    def read(*words, **options):
        done = run(*words, *where, **options)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    return read


BODY = ("--format", "{body}")


@pytest.mark.parametrize(
    ("command", "count", "found"),
    [
        ("message tail", 2, ["m20", "m30"]),
        ("message tail", 9, ["m0", "m10", "m20", "m30"]),
        ("message show", 2, ["m0", "m10"]),
    ],
)
def test_where_selects_messages_by_sql(lines, command, count, found):
    condition = ("--where", "TAGS = 'A' AND price < 100")
    assert lines(*command.split(), "t", "--count", count, *condition, *BODY) == found


def test_a_wrong_condition_or_template_is_refused_with_an_example(where):
    for option in (("--where", "price >"), ("--format", "{bodi}"), ("--format", "{")):
        done = run("message", "show", "t", *option, *where)
        assert (done.exit_code, option[0] in done.stderr) == (2, True)
    assert "offset, id, stored, tags" in run("message", "tail", "t", "--format", "{x}").stderr


def test_format_prints_the_fields_of_a_message(lines):
    shown = lines(
        *("message", "show", "t", "--count", 1, "--format"),
        r"{topic}\t{queue}\t{offset:>3}\t{tags}\t{keys}\t{properties}\t{body}",
    )
    assert shown == ['t\t0\t  0\tA\tk0\t{"price": "0"}\tm0']


def test_follow_prints_new_messages_until_it_is_interrupted(where):
    command = ["message", "tail", "t", "--follow", "--count", "1", *BODY]
    tail = Forked(run_command, *command, "--where", "price > 38 OR price IS NULL", *where)
    assert tail.stdout.readline() == "m39\n"
    run("message", "send", "t", *where, answer=b"one\ntwo\n")
    assert [tail.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
    tail.send_signal(signal.SIGINT)
    assert "Traceback" not in tail.communicate(30)[1]
    assert tail.returncode == 130


def test_follow_is_refused_with_json(where):
    done = run("message", "tail", "t", "--follow", "--json", *where)
    assert json.loads(done.stdout)["error"]["code"] == "USAGE"


def test_a_message_with_a_delay_is_delivered_later(where):
    sent = time.time()
    run("message", "send", "t", "later", "--delay", "1s", *where)
    assert run("message", "tail", "t", "--count", 1, *BODY, *where).stdout == "m39\n"
    deadline = time.monotonic() + 60
    time.sleep(1)
    while run("message", "tail", "t", "--count", 1, *BODY, *where).stdout != "later\n":
        assert time.monotonic() < deadline
        if where[0] == "--path":  # Without a broker, a writer delivers.
            with Store.open(where[1]) as store:
                store.deliver_due()
    assert time.time() - sent >= 1
    assert "30s" in run("message", "send", "t", "x", "--delay", "soon", *where).stderr


def test_each_line_can_have_a_key(where, lines):
    run("message", "send", "t", "--key-separator", ":", *where, answer=b"k-1:a:b\nk-2:\n")
    assert lines("message", "tail", "t", "--count", 2, "--format", "{keys}={body}") == [
        "k-1=a:b",
        "k-2=",
    ]
    done = run("message", "send", "t", "--key-separator", ":", *where, answer=b"k-3:c\nd\n")
    wrong = "line 2: the line does not contain ':'. All lines before it were sent.\n"
    assert (done.exit_code, wrong in done.stderr) == (2, True)
    assert "CLI_KEY_MISSING" in done.stderr
    assert lines("message", "tail", "t", "--count", 1, *BODY) == ["c"]
    for wrong in (["x"], ["--key", "k"]):
        assert run("message", "send", "t", *wrong, "--key-separator", ":", *where).exit_code == 2


def test_consume_commits_the_offsets_of_a_group(where, lines):
    consume = ("message", "consume", "t", "--group", "billing", *BODY, "--count")
    assert lines(*consume, 3) == ["m0", "m1", "m2"]
    assert lines(*consume, 36) == [f"m{number}" for number in range(3, 39)]
    assert lines(*consume, 36) == ["m39"]
    done = run(*consume, 36, *where)
    assert (done.exit_code, done.stdout) == (1, "")
    lag = json.loads(run("group", "lag", "billing", *where, "--json").stdout)["lag"]
    assert [one["lag"] for one in lag] == [0, 0]


def test_consume_for_a_mistyped_group_is_refused_and_creates_nothing(where):
    done = run("message", "consume", "t", "--group", "bilin", *where)
    assert (done.exit_code, "Did you mean 'billing'?" in done.stderr) == (2, True)
    groups = json.loads(run("group", "list", *where, "--json").stdout)["groups"]
    assert [one["group"] for one in groups] == ["billing"]


def completed(words, incomplete):
    """Return the completions that a shell offers after these words."""
    completer = ShellComplete(main, {}, "pyrocket", "_PYROCKET_COMPLETE")
    return [one.value for one in completer.get_completions([*words], incomplete)]


def test_topics_and_groups_are_completed(where):
    for words, begin, names in (
        ("topic show", "", ["t"]),
        ("message tail", "t", ["t"]),
        ("message send", "x", []),
        ("group lag", "b", ["billing"]),
        ("dlq resend", "", ["billing"]),
        ("message consume t --group", "bil", ["billing"]),
        ("group reset billing", "", ["t"]),
    ):
        group, command, *rest = words.split()
        assert completed([group, command, *where, *rest], begin) == names


def test_completion_without_a_store_offers_nothing(monkeypatch):
    for name in ("PYROCKET_STORE", "PYROCKET_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert completed(["topic", "show"], "") == []
    assert completed(["topic", "show", "--path", "/nowhere"], "") == []
