"""The output of `--json` has the fields and types that `store/JSON.md` lists.

Tests of the connector check `checkpoint` and `doctor`.
"""

import json

import click
import grpc
import pytest
from pyrocket import Message, Store
from pyrocket.tools.cli import main
from pyrocket.values.admin import Backoff
from pyrocket.wire.channel import method_of
from support.broker import join_group, served
from support.commands import run
from support.json_manual import COMMANDS, SHAPES, Checker
from support.stores import SMALL, append_as_broker, message, numbered, overwrite, queue_files
from support.stores import batch as batch_of

OF_THE_CONNECTOR = {"check", "micro-batch", "damaged file"}
ANYWHERE = """
    topic list; topic show t; topic create new; topic alter new --perm r; topic delete new --yes
    topic show nowhere
    message find t --key k; message consume t --group billing; message send t hello
    dlq list billing; dlq resend billing --all --to t
    group show slow; group show billing; group alter slow --fifo; group lag; store info
    broker status
"""
ON_A_DIRECTORY = """
    topic create new; topic delete new --dry-run; message tail t; message show t
    dlq resend billing --all --dry-run; group list; group show billing; group create etl
    group alter etl --fifo; group reset etl t --to latest
    offset show billing; group delete etl --yes; store retention
    store retention --retention-hours 72
    store retention --retention-bytes 0 --dry-run; dlq purge billing; store info
    bench --seconds 0.1
    store clean --total-bytes 0 --dry-run
"""


def with_json(command, path=""):
    """Yield the names of all commands that have `--json`."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from with_json(
                command.get_command(click.Context(command), name), f"{path} {name}".strip()
            )
    elif any("--json" in param.opts for param in command.params):
        yield path


def test_json_md_lists_every_command_with_json():
    assert COMMANDS - {"topic delete --dry-run"} == set(with_json(main))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A store with a topic, a dead letter, a committed offset, and delayed messages."""
    path = tmp_path_factory.mktemp("json") / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        store.append(Message(topic="t", body=b"x", queue_id=0, keys=["k"], properties={"a": "b"}))
        store.groups.commit("billing", "t", {0: 0})
        store.groups.create("slow")
        store.groups.update("slow", backoff=Backoff(initial_ms=5, max_ms=9))
        own = {"DLQ_ORIGIN_TOPIC": "t", "RETRY_TOPIC": "t", "UNIQ_KEY": "A" * 32}
        store.topics.create("%DLQ%billing", read_queues=1, write_queues=1)
        append_as_broker(store, "%DLQ%billing", own, 0, body=b"dead")
        store.append_batch(batch_of(numbered(60), 0), topic="t")
        store.append(message(b"later", delay_level=18))
        store.append_batch(batch_of(numbered(60), 0), topic="t")
    return path


def name_of(words):
    """Return the name of a command on the page, which lists commands without arguments."""
    if words[:2] == ["topic", "delete"] and "--dry-run" in words:
        return "topic delete --dry-run"
    return max((name for name in COMMANDS if words[: len(name.split())] == name.split()), key=len)


def commands(text):
    return [each.split() for each in text.replace("\n", ";").split(";") if each.strip()]


def replicating(address):
    """Follow a broker as a replica would; return the call."""
    call, request, _ = method_of("Replicate")
    channel = grpc.insecure_channel(address)
    stream = channel.unary_stream(call, request.SerializeToString)
    following = stream(request(replica="r", name="copy"))
    next(following)
    return following


def test_the_output_of_every_command_has_the_fields_in_json_md(path, tmp_path):
    checker = Checker()

    def check(*words):
        done = run(*words, "--json")
        found = json.loads(done.stdout)
        fails = "nowhere" in words
        assert ("error" in found) == fails, (words, done.output)
        checker.check("Any command" if fails else name_of([*words]), found)

    with served(Store.open(path, config=SMALL)) as address:
        join_group(address, "billing", "c1", t="*")
        following = replicating(address)
        for words in commands(ANYWHERE):
            check(*words, "--endpoint", address)
        check("broker", "list", "--endpoint", address)
        check("topic", "route", "t", "--endpoint", address)
        following.cancel()
    for words in commands(ANYWHERE + ON_A_DIRECTORY):
        check(*words, "--path", path)
    overwrite(queue_files(path)[0], bytes(20), 40)
    check("verify", path)
    check("repair", path, "--dry-run")
    check("snapshot", path, tmp_path / "a")
    fields = {(name, field) for name, known in SHAPES.items() for field in known}
    unseen = {name for name, _ in fields - checker.seen}
    assert {name for name in unseen if not name.startswith(("checkpoint", "doctor"))} == (
        OF_THE_CONNECTOR
    )
